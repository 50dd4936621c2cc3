"""The last call of every Python test file: unittest.main(), with an exit code by which ctest knows skipped tests."""
import sys
import unittest

SKIPPED = 77  # SKIP_RETURN_CODE in tests/CMakeLists.txt


def main(**options):
    """Runs unittest.main(**options), but exits with 77 if all tests were skipped, which ctest then shows as skipped,
    and with 1 if there are no tests."""
    result = unittest.main(module="__main__", exit=False, **options).result
    # A subtest that is skipped belongs to its test. A class that setUpClass skips is in the list, but not in testsRun.
    skipped = {getattr(test, "test_case", test) for test, _ in result.skipped}
    skipped_tests = [test for test in skipped if isinstance(test, unittest.TestCase)]
    if result.wasSuccessful() and skipped and len(skipped_tests) >= result.testsRun:
        for reason in sorted({reason for _, reason in result.skipped}):
            print("skipped:", reason)
        sys.exit(SKIPPED)
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
