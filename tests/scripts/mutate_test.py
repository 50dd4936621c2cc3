"""scripts/mutants.py makes the mutants that it should, and scripts/mutate.py tells them apart in a tiny project."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testkit"))
import mutate  # noqa: E402  pylint: disable=wrong-import-position
from mutants import mutants_of  # noqa: E402  pylint: disable=wrong-import-position
from unittest_main import main  # noqa: E402  pylint: disable=wrong-import-position

SOURCE = """// Whether a number has one digit: a < b && c.
#include "common/digit.h"

bool HasOneDigit(int x) {
  if (x < 0) return false;
  return x <= 9;
}
"""
# Numbers above 9 are not tried, so that some mutants survive.
TEST = """#include "common/digit.h"
TEST(DigitTest, All) {
  return HasOneDigit(-1) || !HasOneDigit(0) || !HasOneDigit(9);
}
"""
HEADER = """bool HasOneDigit(int x);
#define TEST(suite, name) int main()
"""
NINJA = """rule cxx
  command = c++ -O1 -g -I.. $in -o $out
build common_test: phony bin/common_test
build bin/common_test: cxx ../common/digit.cc ../tests/common/digit_test.cc
"""
PROGRAMS = """if(ON)
  pushpull_tests(common
    DIRS common/base common
    LINK x)
endif()
"""


def made(text):
    return {(mutant.operator, mutant.before_and_after(text)[1]) for mutant in mutants_of(text)}


class Mutants(unittest.TestCase):

    def check(self, line, *expected):
        """The mutants of one line in a function's body."""
        self.assertEqual({after for _, after in made(f"void f() {{\n{line}\n}}\n")}, set(expected))

    def test_conditions_and_their_operands(self):
        self.check("if (a && !b(c)) return Bad();",
                   "if ((a && !b(c)) && false) return Bad();", "if ((a && !b(c)) || true) return Bad();",
                   "if ((a || true) && !b(c)) return Bad();", "if (a && (!b(c) || true)) return Bad();",
                   "if (a || !b(c)) return Bad();", "if (a && b(c)) return Bad();",
                   "if (a && !b(c)) return absl::OkStatus();")
        self.check("if (const auto found = Find(x)) {}", "if (const auto found = Find(x); found && false) {}",
                   "if (const auto found = Find(x); found || true) {}")
        self.check("y = x ? a : b;", "y = (x) && false ? a : b;", "y = (x) || true ? a : b;", ";")

    def test_operators_and_numbers(self):
        self.check("const int y = a + 1;", "const int y = a - 1;", "const int y = a ;", "const int y = a + (1 + 1);")
        self.check("const bool y = a < kMax;", "const bool y = a <= kMax;")
        self.check("const bool y = true;", "const bool y = false;")
        self.check("const size_t y = threadIdx.x;", "const size_t y = threadIdx.y;")

    def test_statements(self):
        self.check("__syncthreads();", ";")
        self.check("absl::MutexLock lock(&mutex_);", ";")
        self.check("PP_RETURN_IF_ERROR(Check(x));", ";")
        self.check("for (const T& x : all) sum_ += x;", "for (const T& x : all) ;", "for (const T& x : all) sum_ -= x;")
        self.check("return CheckAll(x);", "return absl::OkStatus();")

    def test_leaves_texts_alone(self):
        for line in ('// a < b', '/* a < b */', 'const char* const y = "a < b";', "const char y = '<';", "#if A < B",
                     'LOG(INFO) << "x" << a + b;', "CHECK_EQ(a + b, c);", 'const char* const y = R"(a < b)";',
                     "std::vector<int> y;"):
            self.check(line)

    def test_keeps_the_number_of_lines(self):
        text = (ROOT / "ps_server/core/coordinator_requests.cc").read_text()
        mutants = list(mutants_of(text))
        self.assertGreater(len(mutants), 100)
        for mutant in mutants:
            changed = mutant.apply(text)
            self.assertEqual(changed.count("\n"), text.count("\n"))
            self.assertTrue(changed != text, mutant)


class ThisProject(unittest.TestCase):

    def test_each_covered_source_has_tests_in_a_known_program(self):
        programs = mutate.test_programs()
        for pattern in mutate.COVERED:
            sources = [path.relative_to(ROOT) for path in ROOT.glob(pattern)]
            self.assertTrue(sources, pattern)
            for source in sources:
                tests = mutate.tests_of(source)
                self.assertTrue(tests, f"{source} has no test")
                for test in tests:
                    if test.endswith(".cc"):
                        self.assertIn(os.path.dirname(test), programs, f"of {test}, which tests {source}")


class TinyProject(unittest.TestCase):

    def setUp(self):
        self.source = SOURCE
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        for folder in ("scripts", "common", "tests/common", "tests/mutation", "build/bin"):
            (self.folder / folder).mkdir(parents=True)
        for name in ("mutate.py", "mutants.py"):
            shutil.copy(ROOT / "scripts" / name, self.folder / "scripts")
        for name, text in {"common/digit.cc": SOURCE, "common/digit.h": HEADER, "tests/common/digit_test.cc": TEST,
                           "tests/CMakeLists.txt": PROGRAMS,
                           "tests/mutation/survivors.toml": "", "build/build.ninja": NINJA}.items():
            (self.folder / name).write_text(text)

    def command(self, *arguments, files=("common/digit.cc",)):
        return [sys.executable, self.folder / "scripts/mutate.py", "--build", self.folder / "build", *arguments, *files]

    def run_script(self, *arguments, files=("common/digit.cc",)):
        done = subprocess.run(self.command(*arguments, files=files), capture_output=True, text=True, timeout=300,
                              check=False)
        self.assertEqual((self.folder / "common/digit.cc").read_text(), self.source, "the source was not restored")
        return done.returncode, done.stdout + done.stderr

    def test_caught_survived_and_listed(self):
        code, output = self.run_script()
        self.assertEqual(code, 1, output)
        self.assertIn("caught       condition common/digit.cc:5: if (x < 0) return false;", output)
        self.assertIn("    -> if ((x < 0) && false) return false;", output)
        self.assertRegex(output, r"survived +number +common/digit.cc:6: return x <= 9;\n    -> return x <= \(9 \+ 1\);")
        self.assertRegex(output, r"caught +swap +common/digit.cc:6: return x <= 9;\n    -> return x < 9;")
        self.assertRegex(output, "6 caught, 1 survived")

        entry = '[[survivor]]\nfile = "common/digit.cc"\nbefore = "{}"\nafter = "{}"\nreason = "a test"\n'
        (self.folder / "tests/mutation/survivors.toml").write_text(
            entry.format("return x <= 9;", "return x <= (9 + 1);") + entry.format("return x;", "return y;"))
        code, output = self.run_script("--operators=number")
        self.assertRegex(output, "listed +number")
        self.assertIn("survivors.toml any more: common/digit.cc: return x;", output)
        self.assertNotIn("return x <= 9;\n    -> return x <= (9 + 1);\nsurvived", output)

    def test_equivalent_and_not_compiled(self):
        self.source = SOURCE.replace("x < 0", "x < 0 + 0").replace("x <= 9", "x <= 9 && nullptr == 0")
        (self.folder / "common/digit.cc").write_text(self.source)
        _, output = self.run_script()
        self.assertRegex(output, r"equivalent +swap .*\n    -> if \(x < 0 - 0\)")
        self.assertRegex(output, r"not compiled +number .*\n    -> .* nullptr == 1")

    def test_an_ended_run_takes_its_change_back(self):
        process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        while not (self.folder / "build/mutate.backup").exists():
            self.assertIsNone(process.poll())
            time.sleep(0.001)
        process.terminate()
        self.assertEqual(process.wait(), 143)
        self.run_script("--sample=0")

    def test_the_change_of_a_killed_run_is_taken_back_by_the_next(self):
        (self.folder / "build/mutate.backup").write_text("common/digit.cc\n" + SOURCE)
        (self.folder / "common/digit.cc").write_text("changed")
        self.run_script("--sample=0")

    def test_a_test_that_fails_on_the_code_as_it_is(self):
        (self.folder / "tests/common/digit_test.cc").write_text(TEST.replace("HasOneDigit(-1)", "HasOneDigit(1)"))
        code, output = self.run_script()
        self.assertEqual(code, 70, output)
        self.assertIn("fails on the code as it is", output)

    def test_a_test_that_belongs_to_no_program(self):
        (self.folder / "tests/CMakeLists.txt").write_text("pushpull_tests(common DIRS common/base LINK x)\n")
        code, output = self.run_script()
        self.assertEqual(code, 70, output)
        self.assertIn("no pushpull_tests() of tests/CMakeLists.txt has the folder tests/common", output)

    def test_a_source_without_tests(self):
        (self.folder / "common/lonely.cc").write_text(SOURCE)
        code, output = self.run_script("--list", files=["common/digit.cc", "common/lonely.cc"])
        self.assertEqual(code, 64, output)
        self.assertIn("none has their name: common/lonely.cc", output)

    def test_changed_looks_at_every_source_that_differs(self):
        # COVERED has no pattern for files directly in common/.
        for name in ("common/digit.cc", "common/lonely.cc", "common/removed.cc", "common/same.cc"):
            (self.folder / name).write_text(SOURCE)
        git = ["git", "-C", self.folder, "-c", "user.name=a", "-c", "user.email=a@example"]
        for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=as it was"]):
            subprocess.run([*git, *command], check=True)
        self.source = SOURCE.replace("x <= 9", "x <= 8")
        for name in ("common/digit.cc", "common/lonely.cc"):
            (self.folder / name).write_text(self.source)
        (self.folder / "common/removed.cc").unlink()
        code, output = self.run_script("--list", "--changed=HEAD", files=())
        self.assertEqual(code, 0, output)
        self.assertIn("none has their name: common/lonely.cc\n", output)
        self.assertIn("swap      common/digit.cc:6: return x <= 8;\n    -> return x < 8;", output)
        for other in (":5:", "common/lonely.cc:", "common/removed.cc", "common/same.cc"):
            self.assertNotIn(other, output)

    def test_samples_are_repeatable(self):
        lists = [self.run_script("--list", "--sample=4", f"--seed={seed}")[1] for seed in (1, 1, 2)]
        self.assertEqual(lists[0], lists[1])
        self.assertNotEqual(lists[0], lists[2])


if __name__ == "__main__":
    main()
