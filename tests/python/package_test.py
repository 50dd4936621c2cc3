"""The package fits the project and the client library: versions, types, doctests, messages about an installation."""
import doctest
import importlib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest
from unittest import mock

from support import TESTS, EndToEndTest, environment, main

import pushpull
from pushpull import _library, doctor

PACKAGE = TESTS.parent / "python" / "pushpull"
HEADER = (TESTS.parent / "worker" / "client" / "pushpull_client.h").read_text()
# C type -> the type in _library.py
TYPES = {"const char*": "c_char_p", "uint32_t": "c_uint", "uint64_t": "c_ulong", "int32_t": "c_int",
         "int64_t": "c_long", "double": "c_double", "float": "c_float", "const int64_t*": "LP_c_long", "const float*": "c_void_p",
         "float*": "c_void_p"}


def has(module):
    return importlib.util.find_spec(module) is not None


class Package(EndToEndTest):

    def test_version_is_the_project_s(self):
        project = re.search(r"project\(pushpull VERSION (\S+)", (TESTS.parent / "CMakeLists.txt").read_text())
        self.assertEqual(pushpull.__version__, project[1])

    def test_structures_are_those_of_the_header(self):
        structures = re.findall(r"typedef struct \{\n(.*?)\n\} Pushpull(\w+);", HEADER, re.DOTALL)
        self.assertEqual(len(structures), 7)
        for body, name in structures:
            body = re.sub(r"//[^\n]*", "", body)
            fields = re.findall(r"(\w[\w ]*\*?)\s+(\w+);", body)
            bound = [(field, kind.__name__) for field, kind in getattr(_library, name)._fields_]
            self.assertEqual(bound, [(field, TYPES[kind.strip()]) for kind, field in fields], name)

    def test_functions_are_those_of_the_header(self):
        text = re.sub(r"//[^\n]*", "", HEADER)
        functions = re.findall(r"PUSHPULL_CLIENT_API\s+([^;]*?)\bpushpull_(\w+)\(([^;]*)\);", text)
        self.assertEqual({name for _, name, _ in functions}, set(_library._PROTOTYPES))
        for result, name, arguments in functions:
            count = 0 if arguments.strip() == "void" else arguments.count(",") + 1
            bound_result, bound = _library._PROTOTYPES[name]
            self.assertEqual(len(bound), count, name)
            self.assertEqual(bound_result is None, result.strip() == "void", name)
        self.assertEqual(int(re.search(r"PUSHPULL_CLIENT_VERSION (\d+)", HEADER)[1]), _library.CLIENT_VERSION)

    def test_doctests(self):
        tried = 0
        for path in PACKAGE.glob("*.py"):
            if ">>>" in path.read_text():
                module = importlib.import_module(f"pushpull.{path.stem}")
                result = doctest.testmod(module)
                self.assertEqual(result.failed, 0, path.name)
                tried += result.attempted
        self.assertGreater(tried, 5)

    def test_examples_in_comments_of_the_package_use_names_that_exist(self):
        for name in pushpull.__all__:
            if name != "torch" or has("torch"):
                self.assertTrue(hasattr(pushpull, name), name)

    @unittest.skipUnless(has("mypy") and has("torch"), "needs mypy and torch")
    def test_types(self):
        result = subprocess.run([sys.executable, "-m", "mypy", "--strict", "-p", "pushpull",
                                 f"--cache-dir={self.folder}"], cwd=PACKAGE.parent, env=environment(),
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_size_of_the_files(self):
        for path in [*PACKAGE.glob("*.py"), *PACKAGE.parent.glob("examples/*.py")]:
            self.assertLess(len(path.read_text().splitlines()), 450, path)

    def test_missing_library(self):
        with mock.patch.dict(os.environ, PUSHPULL_CLIENT_LIBRARY=str(self.folder / "none.so")):
            with self.assertRaisesRegex(pushpull.InstallationError, "was not found at .*none.so"):
                _library.library.__wrapped__()
        with mock.patch.dict(os.environ, PUSHPULL_BIN_DIR=str(self.folder)):
            with self.assertRaisesRegex(pushpull.InstallationError, f"no program ps_server in {self.folder}"):
                pushpull.LocalServer("model {}")

    def test_library_that_does_not_fit(self):
        text = self.folder / "text.so"
        text.write_text("no library")
        with self.assertRaisesRegex(pushpull.InstallationError, "text.so cannot be loaded"):
            _library.open_library(text)
        with self.assertRaisesRegex(pushpull.InstallationError, "libc.so.6 has no function pushpull_clone_new"):
            _library.open_library(pathlib.Path("libc.so.6"))
        with mock.patch.object(_library, "CLIENT_VERSION", 99):
            with self.assertRaisesRegex(pushpull.InstallationError, r"has version \d+ .* needs version 99"):
                _library.open_library(pathlib.Path(_library.library()._name))

    def test_commands_of_the_wheel(self):
        result = self.run_python("-c", "from pushpull import _commands; _commands.ps_server()", "--version")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("0.1.0", result.stdout)
        result = self.run_python("-c", "from pushpull import _commands; _commands.psctl()",
                                 PUSHPULL_BIN_DIR=str(self.folder))
        self.assertEqual(result.returncode, 70)
        self.assertIn(f"psctl: there is no program {self.folder}/psctl", result.stderr)
        text = (PACKAGE.parent / "pyproject.toml").read_text()
        for name in re.findall(r'"pushpull\._commands:(\w+)"', text):
            self.assertTrue(hasattr(importlib.import_module("pushpull._commands"), name), name)

    def run_python(self, *arguments, **changes):
        return subprocess.run([sys.executable, *arguments], env=environment(**changes), capture_output=True, text=True,
                              check=False)

    def test_doctor(self):
        result = self.run_python("-m", "pushpull.doctor")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(len(result.stdout.splitlines()), len(doctor.CHECKS) + 1)
        self.assertIn("everything needed is there", result.stdout)
        result = self.run_python("-m", "pushpull", "doctor", PUSHPULL_CLIENT_LIBRARY="/nowhere/lib.so",
                                 PUSHPULL_BIN_DIR="/nowhere")
        self.assertEqual(result.returncode, 70)
        self.assertRegex(result.stdout, r"client library +PROBLEM .*/nowhere/lib.so")
        self.assertRegex(result.stdout, r"programs +PROBLEM .*no program ps_server in /nowhere")
        self.assertIn("2 problems", result.stdout)


if __name__ == "__main__":
    main()
