"""What the kinds of faults share: one run of one kind, and the loop that disturbs a training job."""
import dataclasses
import json
import os
import pathlib
import random
import shutil
import time
import traceback

import job as jobs
import oracle
from job import Job, Shape
from oracle import Violation

SYNC, ASYNC = Shape(), Shape(sync=False)
TWO_TASKS = Shape(tasks=2, clones=1, workers=2, steps=400, checkpoint_steps=40)
# A campaign shorter than this takes a part of each kind's faults in a run, so that every kind has its turn.
SHORT_MINUTES = 10
SHORT_PART = 4


class References:
    """The last checkpoint of an undisturbed run; made when first asked for. Neither which worker has a clone nor how
    often checkpoints are written changes its bits."""

    def __init__(self, folder):
        self._folder = pathlib.Path(folder)
        self._shards = {}

    def shards(self, shape):
        if not shape.sync:
            return {}
        shape = dataclasses.replace(shape, workers=1, clones=shape.replicas, checkpoint_steps=shape.steps)
        if shape not in self._shards:
            folder = self._folder / f"reference{len(self._shards)}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            with Job(folder, shape, evaluator=False) as job:
                job.start_all()
                job.finish()
                oracle.check_final(job.train_dir, shape.steps)
                self._shards[shape] = oracle.shards(job.train_dir, shape.steps)
            shutil.rmtree(folder)
        return self._shards[shape]


class Run:
    """One run of one kind of fault: its chance, its folder, what it reports, and how long it may go on."""

    def __init__(self, campaign, kind, index):
        self.kind = kind
        self.index = index
        self.rng = random.Random(f"{campaign.seed}/{kind.NAME}/{index}")
        self.folder = campaign.folder / f"{kind.NAME}-{index}"
        self.campaign = campaign
        self.injections = 0
        self.limit = max(1, kind.INJECTIONS // (SHORT_PART if campaign.is_short else 1))

    def reference(self, shape):
        return self.campaign.references.shards(shape)

    def seconds_left(self):
        return self.campaign.deadline - time.monotonic()

    def more(self):
        """Whether another fault is due in this run; a run that is repeated alone is not cut short."""
        return self.injections < self.limit and (self.campaign.repeats or self.seconds_left() > 0)

    def injected(self, fault, times=1):
        self.injections += times
        self.campaign.table.injected(self.kind.NAME, fault, times)

    def recovered(self, fault, seconds):
        self.campaign.table.recovered(self.kind.NAME, fault, seconds)

    def figure(self, text):
        self.campaign.table.kind(self.kind.NAME).figures.append(text)

    def noted(self, job):
        """What the job has put up with."""
        self.campaign.table.kind(self.kind.NAME).notes.update(job.notes)

    def command(self):
        return self.campaign.command(self.kind.NAME, self.index)


class Fault:
    """A kind of fault. A file of faults/ defines one or more subclasses; the campaign finds them by themselves."""
    NAME = ""
    INJECTIONS = 12  # at most, in one run
    NEEDS_ROOT = False
    ONLY_WHEN_NAMED = False  # not part of a campaign over all kinds

    def missing(self):
        """What keeps this machine from it; empty: nothing."""
        return "needs root" if self.NEEDS_ROOT and os.geteuid() != 0 else ""

    def run(self, run):
        """Raises Violation."""
        raise NotImplementedError


class TrainingFault(Fault):
    """Disturbs a training job again and again, lets it end, and compares its result with the undisturbed one's."""
    SHAPES = (SYNC, SYNC, TWO_TASKS, ASYNC)
    LONGEST_GAP_S = 0.4  # undisturbed, between the step after a fault and the next fault

    def make_job(self, run, shape):
        return Job(run.folder, shape)

    def start(self, run, job):
        job.start_all()

    def inject(self, run, job):
        """One fault, from its begin to its end. Returns its name for the table; None: nothing could be done now."""
        raise NotImplementedError

    def calm(self, run, job):
        """No fault is left when the job is to end by itself."""

    def check(self, run, job, expected):
        job.check(expected)

    def run(self, run):
        shape = run.rng.choice([shape for shape in self.SHAPES if run.campaign.mode in ("", shape.mode)])
        expected = run.reference(shape)
        with self.make_job(run, shape) as job:
            self.start(run, job)
            job.await_step(beyond=-1)
            while run.more() and not job.done():
                job.pause(run.rng.uniform(0.0, self.LONGEST_GAP_S))
                if job.done():
                    break
                fault = self.inject(run, job)
                if fault is not None:
                    run.injected(fault)
                    self.await_recovery(run, job, fault)
            self.calm(run, job)
            job.finish()
            run.noted(job)
            self.check(run, job, expected)

    def await_recovery(self, run, job, fault):
        seconds = job.await_step()
        if not job.done():
            run.recovered(fault, seconds)


def carry_out(run):
    """Whether the run kept all promises. A failed run's folder stays, with the reason and the command to repeat it."""
    kind = run.campaign.table.kind(run.kind.NAME)
    run.folder.mkdir(parents=True)
    try:
        run.kind.run(run)
        shutil.rmtree(run.folder, ignore_errors=True)
        return True
    except Violation as violation:
        text = str(violation)
    except Exception:  # pylint: disable=broad-except
        # A fault of the campaign's own must not pass for a result either.
        text = "the campaign failed: " + traceback.format_exc()
        text = f"the campaign failed: {text.strip().splitlines()[-1]}\n{text}"
    finally:
        kind.runs += 1
    kind.violations.append((run.index, f"{text}"))
    (run.folder / "violation.txt").write_text(f"{text}\n\nrepeat with:\n{run.command()}\n")
    (run.folder / "run.json").write_text(json.dumps(
        {"kind": run.kind.NAME, "run": run.index, "seed": run.campaign.seed, "command": run.command()}))
    return False


__all__ = ["ASYNC", "Fault", "Job", "References", "Run", "SYNC", "Shape", "TWO_TASKS", "TrainingFault", "Violation",
           "carry_out", "jobs"]
