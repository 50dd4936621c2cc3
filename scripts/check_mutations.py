#!/usr/bin/env python3
"""Breaks one check of the code at a time and looks whether the test that guards it fails.

usage: scripts/check_mutations.py [--build=DIR] [--only=TEXT] [--fit] [TABLE...]
  --build=DIR   a configured build folder (default build)
  --only=TEXT   only mutations whose name contains TEXT
  --fit         only look whether each mutation still fits the code: nothing is changed or built
  TABLE         default: all of tests/mutation/*.toml

A table is a list of [[mutation]] with
  name     the bad input whose check is taken away
  file     the source to change, from the repository's root
  old      text that is in the file exactly once
  new      what stands there instead
  targets  what Ninja builds after the change and after it was taken back
  test     a command that must pass before and fail after; $BIN is DIR/bin. A test that runs past
           its time fails

Changes are made in place and taken back at the end of each mutation, also after Ctrl-C. Exit code 0:
every mutation was caught; 1: not all were, or one no longer fits the code; 64: bad flags; 65: a bad
table.
"""
import argparse
import glob
import os
import signal
import subprocess
import sys
import tomllib

TEST_SECONDS = 300
FIELDS = {"name", "file", "old", "new", "targets", "test"}


def load(tables):
    mutations = []
    for table in tables:
        try:
            with open(table, "rb") as f:
                entries = tomllib.load(f)["mutation"]
        except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
            sys.exit(bad_table(table, error))
        for entry in entries:
            if set(entry) != FIELDS:
                sys.exit(bad_table(table, f"{entry.get('name')}: expected exactly the fields {sorted(FIELDS)}"))
            mutations.append(entry)
    return mutations


def bad_table(table, reason):
    print(f"check_mutations: {table}: {reason}", file=sys.stderr)
    return 65


class Checker:
    def __init__(self, build):
        self.build_dir = os.path.abspath(build)
        self.environment = dict(os.environ, BIN=os.path.join(self.build_dir, "bin"))
        self.environment["PUSHPULL_BIN_DIR"] = self.environment["BIN"]
        self.passed = set()  # tests that pass on the code as it is

    def build(self, targets):
        return subprocess.run(["ninja", "-C", self.build_dir, *targets.split()], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)

    def test(self, command):
        process = subprocess.Popen(command, shell=True, env=self.environment, start_new_session=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return process.wait(TEST_SECONDS) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # also what a broken test leaves behind
            except ProcessLookupError:
                pass
            process.wait()

    def check(self, mutation):
        """None if the mutation was caught, else what is wrong."""
        misfit = check_fit(mutation)
        if misfit:
            return misfit
        with open(mutation["file"], encoding="utf-8") as f:
            text = f.read()
        if mutation["test"] not in self.passed:
            built = self.build(mutation["targets"])
            if built.returncode != 0:
                return f"does not build as it is: {built.stdout[-2000:]}"
            if not self.test(mutation["test"]):
                return "the test fails on the code as it is"
            self.passed.add(mutation["test"])
        try:
            write(mutation["file"], text.replace(mutation["old"], mutation["new"]))
            built = self.build(mutation["targets"])
            if built.returncode != 0:
                return f"does not build when broken: {built.stdout[-2000:]}"
            return "NOT CAUGHT" if self.test(mutation["test"]) else None
        finally:
            write(mutation["file"], text)
            self.build(mutation["targets"])


def check_fit(mutation):
    """None if the mutation can be made, else why not."""
    try:
        with open(mutation["file"], encoding="utf-8") as f:
            count = f.read().count(mutation["old"])
    except OSError as error:
        return str(error)
    return None if count == 1 else f"'old' is in {mutation['file']} {count} times"


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=True)
    parser.add_argument("--build", default="build")
    parser.add_argument("--only", default="")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("tables", nargs="*")
    try:
        flags = parser.parse_args()
    except SystemExit as exit_:
        return 0 if exit_.code == 0 else 64
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    mutations = [m for m in load(flags.tables or sorted(glob.glob("tests/mutation/*.toml"))) if flags.only in m["name"]]
    if not mutations:
        print("check_mutations: nothing to check", file=sys.stderr)
        return 64
    check, good = (check_fit, "fits") if flags.fit else (Checker(flags.build).check, "caught")
    failures = 0
    for mutation in mutations:
        problem = check(mutation)
        failures += problem is not None
        print(f"{good if problem is None else 'FAILED':8} {mutation['name']}"
              + (f": {problem}" if problem else ""), flush=True)
    print(f"{len(mutations) - failures} of {len(mutations)} mutations: {good}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
