"""Base classes of the faults: a run of one kind of fault, and the loop that disturbs a training job."""
import dataclasses
import itertools
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
# A campaign of less than SHORT_MINUTES injects only 1/SHORT_PART of a kind's faults per run, so that there is time for
# every kind.
SHORT_MINUTES = 10
SHORT_PART = 4


class References:
    """The last checkpoints of undisturbed jobs, each computed when it is first requested. The bits do not depend on how
    the clones are spread over workers, nor on how often checkpoints are written, so such shapes share a reference."""

    def __init__(self, folder):
        self._folder = pathlib.Path(folder)
        self._shards = {}

    def shards(self, shape):
        """Returns file name -> bytes of the last checkpoint's shards; empty in asynchronous mode, which has no fixed
        result."""
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
    """One run of one kind of fault: its random generator, its folder, its reports and its limits."""

    def __init__(self, campaign, kind, index):
        self.kind = kind
        self.index = index
        self.rng = random.Random(f"{campaign.seed}/{kind.NAME}/{index}")
        self.folder = self._new_folder(campaign.folder, f"{kind.NAME}-{index}")
        self.campaign = campaign
        self.injections = 0
        self.limit = max(1, kind.INJECTIONS // (SHORT_PART if campaign.is_short else 1))

    @staticmethod
    def _new_folder(parent, name):
        """Returns a path that does not exist: the folder of an earlier run that failed stays as it is."""
        names = itertools.chain([name], (f"{name}-{attempt}" for attempt in itertools.count(2)))
        return next(parent / name for name in names if not (parent / name).exists())

    def reference(self, shape):
        return self.campaign.references.shards(shape)

    def seconds_left(self):
        return self.campaign.deadline - time.monotonic()

    def fault_due(self):
        """Returns whether this run should inject another fault. The deadline does not apply to a run that is repeated
        with --run, nor to the first fault of a run that --every_kind asks for."""
        in_time = self.campaign.repeats or self.seconds_left() > 0 or (self.campaign.every_kind and not self.injections)
        return self.injections < self.limit and in_time

    def injected(self, fault, times=1):
        self.injections += times
        self.campaign.table.injected(self.kind.NAME, fault, times)

    def recovered(self, fault, seconds):
        self.campaign.table.recovered(self.kind.NAME, fault, seconds)

    def figure(self, text):
        self.campaign.table.kind(self.kind.NAME).figures.append(text)

    def add_notes(self, job):
        """Adds the job's notes on tolerated events to the table."""
        self.campaign.table.kind(self.kind.NAME).notes.update(job.notes)

    def command(self):
        return self.campaign.command(self.kind.NAME, self.index)


class Fault:
    """A kind of fault. Each file in faults/ defines one or more subclasses, which the campaign finds automatically."""
    NAME = ""
    INJECTIONS = 12  # the most faults in one run
    SHAPES = (SYNC,)  # the jobs that this kind disturbs
    NEEDS_ROOT = False
    ONLY_WHEN_NAMED = False  # run only if --only names it

    def missing(self):
        """Returns why this kind cannot run on this machine; empty if it can."""
        return "needs root" if self.NEEDS_ROOT and os.geteuid() != 0 else ""

    def shapes(self, mode):
        """Returns the jobs of a mode, "sync" or "async", that this kind disturbs; all of them if `mode` is empty."""
        return [shape for shape in self.SHAPES if mode in ("", shape.mode)]

    def run(self, run):
        """Carries out the run. Raises Violation if a promise is broken."""
        raise NotImplementedError


class TrainingFault(Fault):
    """Disturbs a training job again and again, lets it end, and compares its result with that of an undisturbed job."""
    SHAPES = (SYNC, SYNC, TWO_TASKS, ASYNC)
    LONGEST_GAP_S = 0.4  # the longest pause between the recovery from one fault and the next fault

    def make_job(self, run, shape):
        return Job(run.folder, shape)

    def start(self, run, job):
        job.start_all()

    def inject(self, run, job):
        """Injects one fault and waits until it is over. Returns its name for the table, or None if no fault was
        possible now."""
        raise NotImplementedError

    def calm(self, run, job):
        """Called before the job has to end by itself: undoes whatever would prevent that."""

    def check(self, run, job, expected):
        """Checks the finished job. Raises Violation."""
        job.check(expected)

    def run(self, run):
        shape = run.rng.choice(self.shapes(run.campaign.mode))
        expected = run.reference(shape)
        with self.make_job(run, shape) as job:
            self.start(run, job)
            job.await_step(beyond=-1)
            while run.fault_due() and not job.done():
                job.pause(run.rng.uniform(0.0, self.LONGEST_GAP_S))
                if job.done():
                    break
                fault = self.inject(run, job)
                if fault is not None:
                    run.injected(fault)
                    self.await_recovery(run, job, fault)
            self.calm(run, job)
            job.finish()
            run.add_notes(job)
            self.check(run, job, expected)

    def await_recovery(self, run, job, fault):
        """Waits for the next step and reports how long it took."""
        seconds = job.await_step()
        if not job.done():
            run.recovered(fault, seconds)


def carry_out(run):
    """Carries out the run and returns whether all promises were kept. The folder of a failed run stays, with the reason
    and the command that repeats it."""
    kind = run.campaign.table.kind(run.kind.NAME)
    run.folder.mkdir(parents=True)
    try:
        run.kind.run(run)
        shutil.rmtree(run.folder, ignore_errors=True)
        return True
    except Violation as violation:
        text = str(violation)
    except Exception:  # pylint: disable=broad-except
        # A bug in the campaign itself counts as a failed run, not as a passed one.
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
