"""The packages of scripts/package.sh are complete: they run from another folder, with their own libraries.

Runs with PUSHPULL_TEST_FULL=1, because it builds everything once more. PYTHON names an interpreter with setuptools,
wheel and numpy; default: the one that runs the test.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "testkit"))
from unittest_main import main  # noqa: E402  pylint: disable=wrong-import-position

PYTHON = os.environ.get("PYTHON", sys.executable)
PROGRAMS = ("ps_server", "worker", "evaluator", "exporter", "make_records", "detect", "psctl")
# What every host has: glibc, and the compiler's libraries.
HOST_LIBRARIES = re.compile(r"(linux-vdso|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s)\.so")


def run(*command, **options):
    """Returns the output of a command that sees nothing of this environment. Raises an error if it fails."""
    done = subprocess.run([str(word) for word in command], check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **{"env": {"PATH": os.environ["PATH"]}, **options})
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def makes_wheels():
    """Whether PYTHON has what scripts/package.sh and this test need."""
    return all(subprocess.run([PYTHON, *arguments], check=False, capture_output=True).returncode == 0
               for arguments in (["-c", "import numpy, pip, setuptools"], ["-m", "wheel", "tags", "--help"]))


@unittest.skipUnless(os.environ.get("PUSHPULL_TEST_FULL") == "1", "builds everything once more; PUSHPULL_TEST_FULL=1")
@unittest.skipUnless(makes_wheels(), f"{PYTHON} has no numpy, pip, setuptools and wheel 0.40")
class Packages(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.packages = cls.folder / "packages"
        run(ROOT / "scripts" / "package.sh", f"--output={cls.packages}", env={**os.environ, "PYTHON": PYTHON})

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def only(self, pattern):
        """Returns the one package whose name matches."""
        found = list(self.packages.glob(pattern))
        self.assertEqual(len(found), 1, f"{pattern} in {list(self.packages.iterdir())}")
        return found[0]

    def expect_own_libraries(self, folder):
        """Expects that the files in bin/ and lib/ load their libraries from lib/ or from every host's."""
        for path in [*(folder / "bin").iterdir(), *(folder / "lib").glob("libpushpull*")]:
            for line in run("ldd", path).splitlines():
                if not HOST_LIBRARIES.search(line) and "ld-linux" not in line:
                    self.assertIn(f"=> {folder}/", line, path.name)

    def expect_programs(self, folder):
        """Expects all programs in a folder, and that they start."""
        self.assertEqual(sorted(path.name for path in folder.iterdir()), sorted(PROGRAMS))
        for name in PROGRAMS:
            self.assertRegex(run(folder / name, "--version"), rf"^{name} \d+\.\d+\.\d+")

    def expect_documents(self, folder):
        """Expects the licence and the README in the share/doc of an installation."""
        documents = {path.name for path in (folder / "share" / "doc" / "pushpull").iterdir()}
        self.assertEqual(documents, {"LICENSE", "README.md", "copyright"})

    def test_wheel(self):
        wheel = self.only("*.whl")
        self.assertRegex(wheel.name, r"^pushpull-[0-9.]+-py3-none-manylinux_2_\d+_x86_64\.whl$")
        folder = self.folder / "wheel"
        run(PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", f"--target={folder}", wheel)
        native = folder / "pushpull" / "_native"
        self.expect_own_libraries(native)
        self.expect_programs(native / "bin")
        self.expect_documents(native)
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
        example = ROOT / "python" / "examples" / "numpy_linear.py"
        self.assertIn("y = 3.000 x + 0.500", run(PYTHON, example, env=environment))
        self.assertIn("everything needed is there", run(PYTHON, "-m", "pushpull.doctor", env=environment))
        with zipfile.ZipFile(wheel) as archive:
            commands = archive.read(next(n for n in archive.namelist() if n.endswith("entry_points.txt"))).decode()
        for name in ("pushpull", *PROGRAMS):
            self.assertIn(f"\n{name} = ", commands)

    def test_tarball(self):
        run("tar", "xzf", self.only("*-linux-x86_64.tar.gz"), "-C", self.folder)
        folder = next(self.folder.glob("pushpull-*"))
        self.expect_own_libraries(folder)
        self.expect_programs(folder / "bin")
        self.expect_documents(folder)

    def test_debian_package(self):
        package = self.only("*.deb")
        run("dpkg-deb", "-x", package, self.folder / "deb")
        self.expect_programs(self.folder / "deb" / "usr" / "bin")
        self.expect_documents(self.folder / "deb" / "usr")
        self.assertTrue((self.folder / "deb" / "usr" / "include" / "pushpull" / "pushpull_client.h").exists())
        self.assertRegex(run("dpkg-deb", "-f", package, "Depends"), r"libgrpc\+\+1\.51")

    def test_context_is_the_last_commit(self):
        names = run("tar", "tzf", self.only("*-context.tar.gz")).splitlines()
        self.assertTrue(any(name.endswith("/deploy/Dockerfile") for name in names))


if __name__ == "__main__":
    main()
