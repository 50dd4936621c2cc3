#!/usr/bin/env python3
"""Breaks the code mechanically, one small change at a time, and looks whether a test fails.

usage: scripts/mutate.py [--build=DIR] [--sample=N [--seed=S]] [--changed=REV] [--operators=A,B] [--list] [FILE...]
  FILE...       sources; default: with --changed every source that differs, otherwise what COVERED below names (input,
                protocol, state files, index arithmetic)
  --build=DIR   a configured Ninja build folder (default build)
  --sample=N    N mutants by chance, the same for the same --seed (default 1) and code
  --changed=REV only mutants of lines that differ from the revision REV
  --operators   only these operators of scripts/mutants.py, for instance condition,statement
  --list        print the mutants instead of running them

A source's tests are tests/PATH_test.cc and those that its lines `// Tested by tests/...` name; --changed names the
sources that have none and leaves them out. Each mutant is built, and the tests of these files are run; if they pass, so
is the whole test program. A mutant does not count if it does not compile, and is equivalent if the programs keep their
bytes. A survivor is fine if tests/mutation/survivors.toml lists it with a reason. Entries of that list that no mutant
matches any more are named.

Changes are made in place and taken back, also after Ctrl-C; after a SIGKILL the next run takes them back.
Exit code 0: every mutant was caught, equivalent or listed; 1: not every one; 64: bad flags; 70: the build or a test
fails on the code as it is.
"""
import argparse
import collections
import hashlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import tomllib

from mutants import mutants_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
SURVIVORS = "tests/mutation/survivors.toml"
COVERED = """common/base/*.cc common/checkpoint/*.cc common/cluster/*.cc common/config/*.cc common/model/sharding.cc
    common/wire/*.cc common/wire/*/*.cc kernels/image_block.cc kernels/packed_image.h kernels/cuda/*.cu
    kernels/detection/*.cc common/optimizer/*.cc common/optimizer/rules/*.cc
    ps_server/core/*.cc ps_server/runtime/*.cc ps_server/store/*.cc ps_server/transport/*.cc
    ps_server/warm_start/*.cc worker/data/*.cc worker/data/augment/*.cc worker/model/device_*.cc
    worker/client/*.cc worker/sampling/*.cc worker/train/*.cc""".split()
# What the end-to-end tests start.
PROGRAMS = ["ps_server", "worker", "evaluator", "detect", "exporter", "make_records", "psctl"]
LEAST_LIMIT = 20.0  # seconds for a test; five times its time on the code as it is, if that is more


def test_programs():
    """Folder of tests -> test program, as tests/CMakeLists.txt has it."""
    text = (ROOT / "tests/CMakeLists.txt").read_text()
    calls = re.findall(r"^\s*pushpull_tests\((\w+)\s+DIRS\s+(.*?)\s+LINK", text, re.DOTALL | re.MULTILINE)
    return {f"tests/{folder}": f"{name}_test" for name, folders in calls for folder in folders.split()}


def tests_of(source):
    """The files that test a source; for a header without tests of its own those of its .cc or .cu."""
    stem = source.with_suffix("")
    named = re.findall(r"^// Tested by (tests/\S+)\.$", (ROOT / source).read_text(), re.MULTILINE)
    mirrored = f"tests/{stem}_test.cc"
    found = [mirrored] * (ROOT / mirrored).exists() + named
    if not found and source.suffix in (".h", ".cuh"):
        bodies = [stem.with_suffix(suffix) for suffix in (".cc", ".cu") if (ROOT / stem.with_suffix(suffix)).exists()]
        return tests_of(bodies[0]) if bodies else []
    return found


class Test:
    """A command, what has to be built for it, and how long it may take."""

    def __init__(self, build, targets, command):
        self.build, self.targets, self.command = build, targets, command
        self.limit = None

    def passes(self):
        environment = dict(os.environ, PUSHPULL_BIN_DIR=str(self.build / "bin"))
        begun = time.monotonic()
        process = subprocess.Popen(self.command, env=environment, cwd=ROOT, start_new_session=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            ok = process.wait(self.limit) == 0
        except subprocess.TimeoutExpired:
            ok = False
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # also what a broken test leaves behind
            except ProcessLookupError:
                pass
            process.wait()
        if self.limit is None:
            self.limit = max(LEAST_LIMIT, 5 * (time.monotonic() - begun))
        return ok


class Tree:
    """The checkout and its build folder."""

    def __init__(self, build):
        self.build = build
        self.backup = build / "mutate.backup"  # name and text of the file that is changed now
        self.programs = test_programs()
        self.ready = {}  # source -> its tests, which pass on the code as it is, their programs, and their digest
        self.known = {}  # command -> Test
        self.restore()

    def restore(self):
        if self.backup.exists():
            name, text = self.backup.read_text().split("\n", 1)
            (ROOT / name).write_text(text)
            self.backup.unlink()

    def make(self, targets):
        return subprocess.run(["ninja", "-C", self.build, *targets], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)

    def digest(self, targets):
        """Of the programs without debug information."""
        digest = hashlib.sha256()
        stripped = self.build / "mutate.stripped"
        for target in targets:
            subprocess.run(["objcopy", "--strip-debug", "--remove-section=.note.gnu.build-id",
                            self.build / "bin" / target, stripped], check=True)
            digest.update(stripped.read_bytes())
        return digest.digest()

    def test(self, targets, command):
        return self.known.setdefault(tuple(command), Test(self.build, targets, command))

    def tests(self, source):
        """Quick tests first, then the whole programs."""
        suites, scripts = collections.defaultdict(list), []
        for name in tests_of(source):
            if name.endswith(".py"):
                scripts.append(self.test(PROGRAMS, [sys.executable, name]))
            else:
                if (folder := os.path.dirname(name)) not in self.programs:
                    stop(f"no pushpull_tests() of tests/CMakeLists.txt has the folder {folder}", 70)
                suites[self.programs[folder]] += re.findall(
                    r"^(?:TYPED_)?TEST\w*\(\s*(\w+),", (ROOT / name).read_text(), re.MULTILINE)
        quick, whole = [], []
        for program, names in suites.items():
            command = [str(self.build / "bin" / program), "--gtest_fail_fast"]
            patterns = ":".join(f"{name}.*:*/{name}.*:{name}/*:*/{name}/*" for name in sorted(set(names)))
            quick.append(self.test([program], [*command, f"--gtest_filter={patterns}"]))
            whole.append(self.test([program], command))
        return quick + whole + scripts

    def prepare(self, source):
        """Builds the tests of a source. Exits if one fails on the code as it is."""
        tests = self.tests(source)
        targets = sorted({target for test in tests for target in test.targets})
        built = self.make(targets)
        if built.returncode != 0:
            stop(f"does not build as it is: {built.stdout[-2000:]}", 70)
        for test in tests:
            if test.limit is None and not test.passes():
                stop(f"fails on the code as it is: {' '.join(test.command)}", 70)
        return tests, targets, self.digest(targets)

    def outcome(self, source, text, mutant):
        if source not in self.ready:
            self.ready[source] = self.prepare(source)
        tests, targets, digest = self.ready[source]
        try:
            self.backup.with_suffix(".new").write_text(f"{source}\n{text}")
            self.backup.with_suffix(".new").rename(self.backup)
            (ROOT / source).write_text(mutant.apply(text))
            if self.make(targets).returncode != 0:
                return "not compiled"
            if self.digest(targets) == digest:
                return "equivalent"
            return "survived" if all(test.passes() for test in tests) else "caught"
        finally:
            self.restore()

    def finish(self):
        """Leaves the programs as the code is."""
        if targets := {target for _, targets, _ in self.ready.values() for target in targets}:
            self.make(targets)  # without targets Ninja would build everything


def changed_sources(revision):
    folders = sorted({pattern.split("/")[0] for pattern in COVERED})
    names = subprocess.run(["git", "diff", "--name-only", "--diff-filter=d", revision, "--", *folders],
                           stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True).stdout.splitlines()
    return [path for path in map(pathlib.Path, names) if path.suffix in (".h", ".cc", ".cuh", ".cu")]


def changed_lines(revision, source):
    diff = subprocess.run(["git", "diff", "-U0", revision, "--", source], stdout=subprocess.PIPE, text=True, cwd=ROOT,
                          check=True).stdout
    lines = set()
    for begin, count in re.findall(r"^@@ .*\+(\d+)(?:,(\d+))? @@", diff, re.MULTILINE):
        lines.update(range(int(begin), int(begin) + int(count or 1)))
    return lines


def describe(mutant, text, source):
    before, after = mutant.before_and_after(text)
    return f"{mutant.operator:9} {source}:{mutant.lines(text)[0]}: {before}\n    -> {after}"


def stop(message, code):
    print(f"mutate: {message}", file=sys.stderr)
    sys.exit(code)


def parse_flags():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--changed")
    parser.add_argument("--operators", type=lambda names: names.split(","))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    try:
        return parser.parse_args()
    except SystemExit as exit_:
        sys.exit(64 if exit_.code else 0)


def chosen_files(flags):
    if flags.files:
        return flags.files
    if flags.changed:
        return changed_sources(flags.changed)
    return sorted(path.relative_to(ROOT) for pattern in COVERED for path in ROOT.glob(pattern))


def key_of(mutant, text, source):
    """A mutant's entry in SURVIVORS."""
    return (str(source), *mutant.before_and_after(text))


def listed_survivors(found, texts):
    """The keys of the entries of SURVIVORS. Names those of the files in `texts` that no mutant matches any more."""
    with open(ROOT / SURVIVORS, "rb") as f:
        listed = {(entry["file"], entry["before"], entry["after"]) for entry in tomllib.load(f).get("survivor", [])}
    for file, before, _ in listed - {key_of(mutant, texts[source], source) for source, mutant in found}:
        if pathlib.Path(file) in texts:
            print(f"no mutant matches this entry of {SURVIVORS} any more: {file}: {before}")
    return listed


def without_untested(flags, found):
    """Names the sources that no test is named for, and leaves them out. Exits if they were asked for."""
    untested = sorted({str(source) for source, _ in found if not tests_of(source)})
    if not untested:
        return found
    message = f"no test is named in these sources, and none has their name: {' '.join(untested)}"
    if flags.files or not flags.changed:
        stop(message, 64)
    print(message)
    return [(source, mutant) for source, mutant in found if str(source) not in untested]


def chosen_mutants(flags, found, texts):
    """Those of `found` that the flags ask for."""
    if flags.operators:
        found = [(source, mutant) for source, mutant in found if mutant.operator in flags.operators]
    if flags.changed:
        changed = {source: changed_lines(flags.changed, source) for source in texts}
        found = [(source, mutant) for source, mutant in found
                 if any(first <= line <= last for line in changed[source]
                        for first, last in [mutant.lines(texts[source])])]
    found = without_untested(flags, found)
    if flags.sample is not None and flags.sample < len(found):
        found = sorted(random.Random(flags.seed).sample(found, flags.sample), key=lambda each: (each[0], each[1].begin))
    return found


def main():
    flags = parse_flags()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of every finally
    texts = {source: (ROOT / source).read_text() for source in chosen_files(flags)}
    found = [(source, mutant) for source, text in texts.items() for mutant in mutants_of(text)]
    listed = listed_survivors(found, texts)
    found = chosen_mutants(flags, found, texts)
    if flags.list:
        for source, mutant in found:
            print(describe(mutant, texts[source], source))
        print(f"{len(found)} mutants")
        return 0

    tree = Tree(pathlib.Path(flags.build).resolve())
    counts = collections.Counter()
    try:
        for source, mutant in found:
            outcome = tree.outcome(source, texts[source], mutant)
            if outcome == "survived" and key_of(mutant, texts[source], source) in listed:
                outcome = "listed"
            counts[outcome] += 1
            print(f"{outcome:12} {describe(mutant, texts[source], source)}", flush=True)
    finally:
        tree.finish()
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "no mutants")
    return 1 if counts["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
