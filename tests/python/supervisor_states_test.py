"""The supervisor of `pushpull worker` in this process: what its line shows, and clones that cannot be started."""
import unittest

from support import main

from pushpull import _supervisor
from pushpull._reports import WAIT_OF_SPARE, Progress


def supervisor_of(num_clones):
    """Returns a supervisor, and the list of what it says."""
    supervisor = _supervisor.Supervisor(_supervisor.Options("127.0.0.1:1", num_clones, 1, 0, ["program.py"]))
    supervisor._line = RecordedLine()
    return supervisor, supervisor._line.shown


class RecordedLine:
    """Stands in for the ProgressLine."""

    def __init__(self):
        self.shown = []

    def wait(self, for_whom):
        self.shown.append(f"waiting for {for_whom}")

    def update(self, reports):
        self.shown.append([report.step for report in reports])

    def interrupt(self):
        pass

    finish = interrupt


def report(step, waiting_for=""):
    return Progress(step, 0, 1.0, 0.1, 60.0, 0, 0, waiting_for)


class Line(unittest.TestCase):

    def shown(self, *reports, left=()):
        """Returns what the line shows for running clones with these reports, and for clones that have left."""
        supervisor, said = supervisor_of(len(reports) + len(left))
        for clone, its_report in zip(supervisor._clones, reports + left):
            clone.process, clone.report, clone.restart_at = object(), its_report, None
        for clone in supervisor._clones[len(reports):]:
            clone.process, clone.left = None, True
        supervisor._show()
        return said[0]

    def test_a_spare_does_not_hide_that_the_others_train(self):
        # The first spare has trained until the job was scaled; the second one is new.
        spares = (report(40, WAIT_OF_SPARE), report(0, WAIT_OF_SPARE))
        self.assertEqual(self.shown(*spares, report(100), report(99)), [100, 99])
        self.assertEqual(self.shown(*spares, report(100, "clone 7")), "waiting for clone 7")
        self.assertEqual(self.shown(*spares, report(0)), "waiting for the first step")
        self.assertEqual(self.shown(*spares, None), "waiting for clone 2 of 3 (starting)")
        for left in ((), (report(100),)):
            self.assertEqual(self.shown(*spares, left=left), f"waiting for {WAIT_OF_SPARE}")

    def test_waits_are_those_of_running_clones(self):
        self.assertEqual(self.shown(report(100), report(90, "ps task 0")), "waiting for ps task 0")
        self.assertEqual(self.shown(report(100), left=(report(99),)), [100])


if __name__ == "__main__":
    main()
