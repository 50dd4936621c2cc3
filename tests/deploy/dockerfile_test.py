"""Tests of deploy/Dockerfile that need no Docker daemon: its form, packages and programs, and their libraries."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "testkit"))
from unittest_main import main  # noqa: E402  pylint: disable=wrong-import-position

BIN = pathlib.Path(os.environ.get("PUSHPULL_BIN_DIR", ROOT / "build" / "bin"))
INSTRUCTIONS = {"ARG", "FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "STOPSIGNAL", "CMD", "LABEL"}
# Packages in debian:12-slim, because apt itself needs them.
BASE_PACKAGES = {"libc6", "libgcc-s1", "libstdc++6"}
# Libraries that programs load only if they are built with CUDA. They do not come from Debian's packages.
RUNTIME_ONLY_ON_GPU = re.compile(r"libcuda|libnv")


def parse(text):
    """Returns [(instruction, arguments)], with continued lines joined and without comments."""
    lines = [line for line in text.splitlines() if not re.match(r"\s*(#|$)", line)]
    joined = re.sub(r"\\\n", " ", "\n".join(lines) + "\n")
    return [tuple(line.strip().split(None, 1)) for line in joined.splitlines() if line.strip()]


def lint(instructions):
    """Returns the problems that a linter of Dockerfiles would list."""
    problems, stages, user, last_from = [], set(), None, 0
    for i, (word, rest) in enumerate(instructions):
        if word not in INSTRUCTIONS:
            problems.append(f"unknown or unwanted instruction {word}")
        if word == "FROM":
            last_from, user = i, None
            match = re.fullmatch(r"(\S+)(?: AS (\w+))?", rest)
            if not match:
                problems.append(f"FROM {rest}: expected an image, and AS with a name")
            elif match.group(2):
                stages.add(match.group(2))
            if match and not match.group(1).startswith("$") and ":" not in match.group(1):
                problems.append(f"FROM {rest}: no tag")
        if word == "USER":
            user = rest
        if word == "COPY":
            source = re.search(r"--from=(\S+)", rest)
            if source and source.group(1) not in stages:
                problems.append(f"COPY {rest}: no such stage")
        if word == "RUN" and "apt-get install" in rest:
            if "--no-install-recommends" not in rest or "rm -rf /var/lib/apt/lists" not in rest:
                problems.append("apt-get install without --no-install-recommends, or lists left behind")
        if word == "CMD" and not rest.startswith("["):
            problems.append("CMD uses a shell, which would not forward SIGTERM")
    if user is None or user.split(":")[0] in ("root", "0") or not user.split(":")[0].isdigit():
        problems.append(f"runs as {user}: expected a numeric user that is not root")
    final = [word for word, _ in instructions[last_from:]]
    if final.count("FROM") != 1 or len(stages) < 1:
        problems.append("expected one stage that builds and another that runs")
    return problems


def packages_of(paths):
    """Returns path of a library -> its Debian package.

    A package may list the library under / or under /usr, and by the name of a symbolic link or of its target.
    """
    spellings = {}
    for path in paths:
        real = str(pathlib.Path(path).resolve())
        for name in {path, real, path.removeprefix("/usr"), "/usr" + path, real.removeprefix("/usr")}:
            spellings.setdefault(name, set()).add(path)
    found = subprocess.run(["dpkg", "-S", *spellings], capture_output=True, text=True, check=False).stdout
    packages = {}
    for line in found.splitlines():
        package, name = line.split(": ", 1)
        for path in spellings.get(name, ()):
            packages[path] = package.split(":")[0]
    return packages


def with_dependencies(packages):
    """Returns the packages and all their dependencies, as far as they are installed on this machine."""
    listing = subprocess.run(["dpkg-query", "-W", "-f", "${Package}\t${Depends}, ${Pre-Depends}\n"], capture_output=True,
                             text=True, check=True).stdout
    depends = {}
    for line in listing.splitlines():
        name, text = line.split("\t")
        depends.setdefault(name, set()).update(re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)", text))
    closure, todo = set(), list(packages)
    while todo:
        package = todo.pop()
        if package not in closure:
            closure.add(package)
            todo.extend(depends.get(package, ()))
    return closure


class DockerfileTest(unittest.TestCase):

    def setUp(self):
        self.text = (ROOT / "deploy" / "Dockerfile").read_text()
        self.instructions = parse(self.text)
        self.build = next(rest for word, rest in self.instructions if word == "RUN" and "cmake --build" in rest)
        self.programs = re.search(r"--target ((?:\w+ )+)", self.build).group(1).split()

    def packages(self):
        """Returns the packages that the final stage installs."""
        run = next(rest for word, rest in self.instructions if word == "RUN" and "groupadd" in rest)
        return set(re.search(r"--no-install-recommends\s+(.*?)&&", run).group(1).split())

    def test_form(self):
        self.assertEqual(lint(self.instructions), [])

    def test_linter_finds_problems(self):
        for broken, word in [(self.text.replace("USER 10001:10001", "USER root"), "runs as root"),
                             (self.text.replace("USER 10001:10001\n", ""), "runs as None"),
                             (self.text.replace("--from=build", "--from=builder"), "no such stage"),
                             (self.text.replace("--no-install-recommends", ""), "apt-get install"),
                             (self.text.replace('CMD ["ps_server", "--help"]', "CMD ps_server"), "shell"),
                             (self.text.replace("debian:12-slim\n", "debian\nFROM debian\n"), "no tag"),
                             (self.text.replace("WORKDIR", "ADD"), "ADD")]:
            self.assertIn(word, "\n".join(lint(parse(broken))))

    def test_every_copied_program_is_built(self):
        installed = re.findall(r"/build/bin/(\w+)", self.build)
        self.assertEqual(sorted(installed), sorted(self.programs))
        listings = "\n".join(path.read_text() for path in ROOT.glob("*/CMakeLists.txt"))
        for program in self.programs:
            self.assertTrue(f"pushpull_binary({program} " in listings, f"{program} is not a program of the project")

    def test_copied_sources_are_in_the_context(self):
        ignored = (ROOT / ".dockerignore").read_text().split()
        for word, rest in self.instructions:
            if word == "COPY" and "--from" not in rest:
                source = rest.split()[0]
                self.assertTrue((ROOT / source).exists(), source)
                self.assertNotIn(source.split("/")[0], ignored)
        self.assertIn(".git", ignored)

    @unittest.skipUnless(shutil.which("apt-cache"), "no apt-cache here")
    def test_every_package_is_in_debian_12(self):
        known = subprocess.run(["apt-cache", "pkgnames", "lib"], capture_output=True, text=True, check=True).stdout.split()
        known += subprocess.run(["dpkg-query", "-W", "-f", "${Package}\\n"], capture_output=True, text=True,
                                check=True).stdout.split()
        self.assertEqual(self.packages() - set(known), set())

    @unittest.skipUnless(shutil.which("dpkg") and shutil.which("ldd"), "no dpkg or ldd here")
    def test_packages_are_those_that_the_programs_need(self):
        """Every shared library comes from a listed package, and every listed package is needed."""
        built = [program for program in self.programs if (BIN / program).exists()]
        if not built:
            self.skipTest("no program is built")
        loaded = set()
        for program in built:
            for name, path in re.findall(r"(\S+) => (/\S+)", subprocess.run(
                    ["ldd", str(BIN / program)], capture_output=True, text=True, check=True).stdout):
                # Only test builds load the libraries of sanitizers.
                if not re.match(r"lib(asan|ubsan|tsan)", name) and not RUNTIME_ONLY_ON_GPU.match(name):
                    loaded.add(path)
        packages = packages_of(loaded)
        self.assertEqual(loaded - set(packages), set(), "no package contains these libraries")
        needed = set(packages.values())
        self.assertEqual(needed - with_dependencies(self.packages() | BASE_PACKAGES), set(), "missing in the Dockerfile")
        self.assertEqual(self.packages() - needed, set(), "not loaded by any program")


if __name__ == "__main__":
    main(verbosity=2)
