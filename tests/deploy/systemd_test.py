"""Tests of deploy/systemd/: systemd-analyze verifies the units and rates their security, and their flags and exit codes
match those of the programs."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "testkit"))
from unittest_main import main  # noqa: E402  pylint: disable=wrong-import-position

UNITS = ROOT / "deploy" / "systemd"
MOST_EXPOSED = 20  # highest allowed exposure in `systemd-analyze security`, in tenths
# Directives that every unit needs although systemd-analyze does not require each of them.
DIRECTIVES = ["NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=",
              "SystemCallFilter=@system-service", "LimitCORE=0", "SuccessExitStatus=143", "Restart=on-failure"]


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


class SystemdTest(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pushpull-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.units = {path.name: path.read_text() for path in sorted(UNITS.glob("*.service"))}
        self.assertEqual(list(self.units), ["evaluator.service", "ps_server.service", "ps_server@.service",
                                            "worker.service"])

    def copy(self, name, text):
        """Writes a unit that systemd-analyze can read: templates get an instance, and the program is /bin/true."""
        path = self.folder / name.replace("@.", "@0.")
        path.write_text(re.sub(r"/usr/local/bin/\w+", "/bin/true", text))
        return path

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze here")
    def test_systemd_accepts_the_units(self):
        for name, text in self.units.items():
            result = analyze("verify", str(self.copy(name, text)))
            self.assertEqual((result.returncode, result.stderr), (0, ""), name)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze here")
    def test_systemd_rejects_broken_units(self):
        text = self.units["ps_server.service"]
        for broken in (text.replace("ExecStart=/usr", "ExecStart=usr"), text.replace("NoNewPrivileges", "NoNewPrivilege")):
            result = analyze("verify", str(self.copy("ps_server.service", broken)))
            self.assertNotEqual((result.returncode, result.stderr), (0, ""))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze here")
    def test_hardening(self):
        for name, text in self.units.items():
            threshold = f"--threshold={MOST_EXPOSED}"
            result = analyze("security", "--offline=true", threshold, str(self.copy(name, text)))
            self.assertEqual(result.returncode, 0, f"{name}: {result.stdout[-400:]}{result.stderr}")
            soft = text.replace("CapabilityBoundingSet=\n", "").replace("SystemCallFilter", "#").replace("PrivateUsers", "#")
            self.assertNotEqual(analyze("security", "--offline=true", threshold, str(self.copy(name, soft))).returncode, 0)

    def test_directives_of_every_unit(self):
        for name, text in self.units.items():
            for directive in DIRECTIVES:
                self.assertIn(directive, text.splitlines(), name)

    def test_users(self):
        """Tasks on several hosts share a folder, so they need one user; elsewhere systemd makes one up."""
        for name, text in self.units.items():
            user = "User=pushpull-data" if name == "ps_server@.service" else "DynamicUser=yes"
            self.assertIn(user, text.splitlines(), name)
            self.assertIn("UMask=0077", text.splitlines(), name)
        self.assertNotIn("DynamicUser", self.units["ps_server@.service"])

    def test_units_with_copied_certificates_say_how_to_renew_them(self):
        """systemd copies credentials when it starts a unit, so a program never sees that they were replaced."""
        readme = (ROOT / "deploy" / "README.md").read_text()
        renewal = next(line for line in readme.splitlines() if line.startswith("    systemctl try-restart"))
        copying = [name for name, text in self.units.items() if "LoadCredential=" in text]
        self.assertEqual(copying, ["ps_server@.service", "worker.service"])
        for name in copying:
            unit = name.replace(".service", "").replace("@", "@*")
            head = self.units[name].split("[Unit]")[0]
            self.assertRegex(head, "systemctl try-restart '?" + re.escape(unit) + "'?\n")
            self.assertIn(unit, renewal)

    def test_worker_and_server_can_share_memory(self):
        """The kernel refuses /proc/PID/fd to a process of another user namespace."""
        for name in ("ps_server.service", "worker.service"):
            self.assertNotIn("PrivateUsers=yes", self.units[name].splitlines(), name)

    def test_a_server_that_has_failed_keeps_its_state(self):
        for name in ("ps_server.service", "ps_server@.service"):
            self.assertIn("RuntimeDirectoryPreserve=yes", self.units[name].splitlines(), name)

    def test_exit_codes(self):
        header = (ROOT / "common" / "cli" / "exit_codes.h").read_text()
        codes = {int(code) for code in re.findall(r"kExit\w+ = (\d+)", header)}
        permanent = {1} | {code for code in codes if 1 <= code < 128}
        for name, text in self.units.items():
            given = re.search(r"^RestartPreventExitStatus=(.*)$", text, re.MULTILINE).group(1)
            self.assertEqual({int(code) for code in given.split()}, permanent, name)

    def test_flags_exist(self):
        mains = {"ps_server": "ps_server/ps_server_main.cc", "worker": "worker/worker_main.cc",
                 "evaluator": "worker/evaluator_main.cc"}
        for name, text in self.units.items():
            command = re.search(r"^ExecStart=/usr/local/bin/(\w+) (.*)$", text, re.MULTILINE)
            sources = [ROOT / mains[command.group(1)], *(ROOT / "common" / "cli").glob("*.cc")]
            known = {"flagfile"} | {flag for source in sources
                                    for flag in re.findall(r"ABSL_FLAG\(\s*[^,]+(?:<[^>]*>)?,\s*(\w+)", source.read_text())}
            for flag in re.findall(r"--(\w+)=", command.group(2)):
                self.assertIn(flag, known, name)


if __name__ == "__main__":
    main(verbosity=2)
