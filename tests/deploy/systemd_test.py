"""deploy/systemd/: systemd itself reads the units and grades their hardening; exit codes are those of the programs."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy" / "systemd"
MOST_EXPOSED = 20  # in tenths, of `systemd-analyze security`
# What one unit needs and systemd-analyze would let pass without.
DIRECTIVES = ["DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=",
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
        """As systemd would see it: templates with an instance, and a program that exists here."""
        path = self.folder / name.replace("@.", "@0.")
        path.write_text(re.sub(r"/usr/local/bin/\w+", "/bin/true", text))
        return path

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze here")
    def test_systemd_takes_them(self):
        for name, text in self.units.items():
            result = analyze("verify", str(self.copy(name, text)))
            self.assertEqual((result.returncode, result.stderr), (0, ""), name)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze here")
    def test_a_broken_unit_is_caught(self):
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

    def test_what_every_unit_says(self):
        for name, text in self.units.items():
            for directive in DIRECTIVES:
                self.assertIn(directive, text.splitlines(), name)

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
    unittest.main(verbosity=2)
