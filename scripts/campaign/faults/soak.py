"""Hours of training with occasional disturbances, to show that nothing grows.

Memory, descriptors and threads of the server, the supervisor and the evaluator are sampled, and their slopes reported.
Clones are not sampled, because some disturbances kill them.
"""
import os
import signal
import time

import fault_shim
import oracle
from engine import Fault, Violation
from fault_shim import Shim
from job import Job, PATIENCE_S, Shape
from processes import clone_pids, resident_bytes, send

# So many steps that the job never ends by itself; end() stops it.
SHAPE = Shape(steps=1000000000, checkpoint_steps=500)
MIB = 1 << 20
SAMPLE_S = 2.0
GAP_S = 15.0  # between two disturbances
SETTLED_S = 60.0  # no samples before this time, because young processes still grow
# Bounds on the growth over the whole run, computed from the slope.
RESIDENT_GROWTH = 32 * MIB
COUNT_GROWTH = 8.0


class Soak(Fault):
    NAME = "soak"
    INJECTIONS = 1 << 30
    SHAPES = (SHAPE,)
    ONLY_WHEN_NAMED = True  # it would use all the time of the campaign

    def missing(self):
        return fault_shim.missing()

    @staticmethod
    def figures(pid):
        """Returns the memory, descriptors and threads of a process, or None if it has ended."""
        try:
            return {"memory": resident_bytes(pid), "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
                    "threads": len(os.listdir(f"/proc/{pid}/task"))}
        except (FileNotFoundError, ProcessLookupError):
            return None

    def run(self, run):
        shim = Shim(run.folder / "control", [run.folder / "run"])
        with Job(run.folder, SHAPE, env=shim.environment()) as job:
            job.start_all()
            job.await_step(beyond=-1)
            samples = {}
            begin = time.monotonic()
            disturbed = begin
            while run.fault_due():
                job.pause(SAMPLE_S)
                now = time.monotonic()
                if now - begin >= SETTLED_S:
                    for role in job.roles.values():
                        figures = self.figures(role.pid)
                        if figures is None:
                            continue
                        for what, value in figures.items():
                            samples.setdefault((role.name, len(role.lives), what), []).append((now - begin, value))
                if now - disturbed >= GAP_S:
                    disturbed = now
                    fault = self.disturb(run, job, shim)
                    if fault is not None:
                        run.injected(fault)
                        run.recovered(fault, job.await_step())
            self.report(run, samples)
            self.end(job)

    def disturb(self, run, job, shim):
        """Injects one random disturbance. Returns its name, or None if it had no effect."""
        what = run.rng.choice(("stop", "clone", "clock", "disk", "supervisor"))
        if what == "stop":
            name = run.rng.choice(list(job.roles))
            job.signal(name, signal.SIGSTOP)
            job.pause(run.rng.uniform(0.1, 3.0))
            job.signal(name, signal.SIGCONT)
            return f"SIGSTOP {name}"
        if what == "clone":
            clones = clone_pids(job.roles["worker0"].pid)
            if not clones or not send(run.rng.choice(list(clones.values())), signal.SIGKILL):
                return None
            return "SIGKILL clone"
        if what == "clock":
            step = run.rng.choice((3600, -3600, 20, -20))
            run.offset = getattr(run, "offset", 0) + step
            shim.move_clock(run.offset)
            return f"clock {step:+d} s"
        if what == "supervisor":
            job.signal("worker0", signal.SIGTERM)
            job.roles["worker0"].process.wait(PATIENCE_S)
            return "SIGTERM supervisor"
        before = shim.random_faults()
        shim.fail_at_random(0.3, fault_shim.NO_SPACE | fault_shim.SHORT_WRITE | fault_shim.SLOW_SYNC, slow_ms=200,
                            seed=run.rng.getrandbits(32))
        job.pause(run.rng.uniform(0.2, 2.0))
        shim.fail_at_random(0, 0)
        return "disk" if shim.random_faults() > before else None

    def report(self, run, samples):
        """Reports the slope of every sampled figure. Raises Violation if one grew too much."""
        grown = []
        for (name, life, what), values in sorted(samples.items()):
            seconds = values[-1][0] - values[0][0]
            if len(values) < 10:
                continue
            per_hour = oracle.slope(values)
            unit, bound = ("MiB", RESIDENT_GROWTH) if what == "memory" else ("", COUNT_GROWTH)
            scale = MIB if what == "memory" else 1
            run.figure(f"{name}, life {life}, {what}: {values[0][1] / scale:.1f} to {values[-1][1] / scale:.1f} {unit} "
                       f"in {seconds / 60:.0f} minutes, slope {per_hour / scale:+.2f} {unit} per hour")
            if per_hour * seconds / 3600 > bound:
                grown.append(f"{what} of {name} grows by {per_hour / scale:.2f} {unit} per hour")
        if grown:
            raise Violation("; ".join(grown))

    @staticmethod
    def end(job):
        """Ends the server by SIGTERM. Raises Violation if it does not publish its last version."""
        job.signal("ps0", signal.SIGTERM)
        code = job.roles["ps0"].process.wait(PATIENCE_S)
        if code != 143:
            raise Violation(f"the server ended with {code} after SIGTERM, expected 143")
        saved, applied = oracle.newest_verified(job.train_dir), job.applied()
        if saved < applied:
            raise Violation(f"after SIGTERM the newest checkpoint is of step {saved}, {applied} is applied")
