"""The last call of every Python test file: unittest.main(), with an exit code by which ctest knows skipped tests."""
import sys
import unittest

SKIPPED = 77  # SKIP_RETURN_CODE in tests/CMakeLists.txt


def main(**options):
    """Runs unittest.main(**options), but exits with 77 if all tests were skipped, which ctest then shows as skipped."""
    result = unittest.main(module="__main__", exit=False, **options).result
    # A whole class that setUpClass skips counts as skipped, but not as run.
    if result.wasSuccessful() and result.skipped and len(result.skipped) >= result.testsRun:
        for reason in sorted({reason for _, reason in result.skipped}):
            print("skipped:", reason)
        sys.exit(SKIPPED)
    sys.exit(0 if result.wasSuccessful() else 1)
