"""scripts/bench/local_steps.py says what is missing before it trains, and keeps the runs of all ways apart."""
import importlib.util
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts" / "bench"), str(ROOT / "tests" / "testkit")]

import local_steps  # pylint: disable=wrong-import-position
from unittest_main import main  # noqa: E402  pylint: disable=wrong-import-position


class LocalSteps(unittest.TestCase):

    def test_each_way_has_folders_of_its_own(self):
        ways = [local_steps.Way.parse(text)
                for text in ("8:int8/fp32", "8:int8/bf16", "8:fp32/fp32", "64:int8/bf16")]
        made = []

        def run(job, arguments, way, seed, rounds, folder, address, inside=()):  # pylint: disable=too-many-arguments
            folder.mkdir()
            made.append(folder)
            return float(len(made)), "unseen texts: accuracy 50.00%"

        arguments = mock.Mock(batches=64, seeds="1,2", timed_batches=16)
        with mock.patch.object(local_steps, "run", run), \
                mock.patch.object(local_steps, "link_bytes", mock.Mock(side_effect=[i * i for i in range(100)])), \
                mock.patch("builtins.print"), tempfile.TemporaryDirectory() as name:
            local_steps.measure_job("language", arguments, ways, mock.Mock(address="a", inside=()), pathlib.Path(name))
        self.assertEqual(len(made), 4 * (2 + 2))

    def test_missing_modules_and_unknown_jobs(self):
        find_spec = importlib.util.find_spec
        for missing in ("numpy", "torch"):
            with mock.patch.object(importlib.util, "find_spec",
                                   lambda name, missing=missing: None if name == missing else find_spec("json")):
                local_steps.check_jobs(["mnist"])
                with self.assertRaisesRegex(ValueError, f"the job language needs the module {missing}, which .*python"):
                    local_steps.check_jobs(["mnist", "language"])
        with self.assertRaisesRegex(ValueError, "there is no job 'nope', expected mnist or language"):
            local_steps.check_jobs(["nope"])


if __name__ == "__main__":
    main()
