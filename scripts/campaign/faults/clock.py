"""Steps of the wall clock of all processes, by an hour or by seconds, forwards and backwards."""
import signal

import engine
import fault_shim
from engine import TrainingFault, Violation
from fault_shim import Shim
from job import Job

HOUR_S = 3600
# No wait depends on the wall clock, so a step of it should delay nothing; the bounds leave time for a busy machine.
STEP_WITHIN_S = 10
END_WITHIN_S = 15


class Clock(TrainingFault):
    """Checks that no lease ends, no wait gets longer, and SIGTERM still ends a process within seconds."""
    NAME = "clock"
    SHAPES = (engine.SYNC, engine.ASYNC, engine.TWO_TASKS)
    INJECTIONS = 25
    LONGEST_GAP_S = 0.2

    def missing(self):
        return fault_shim.missing()

    def make_job(self, run, shape):
        run.shim = Shim(run.folder / "control", [])
        run.offset = 0
        return Job(run.folder, shape, env=run.shim.environment())

    def inject(self, run, job):
        step = run.rng.choice((HOUR_S, -HOUR_S, HOUR_S, -HOUR_S, 20, -20, 1.5, -1.5))
        run.offset += step
        run.shim.move_clock(run.offset)
        fault = f"{step:+g} s"
        if run.rng.random() < 0.15:
            name = run.rng.choice(["worker0", "evaluator", "ps0"])
            if job.roles[name].running():
                job.signal(name, signal.SIGTERM)
                self.await_end(job, name)
                return f"{fault}, then SIGTERM"
        return fault

    def await_end(self, job, name):
        process = job.roles[name].process
        try:
            process.wait(END_WITHIN_S)
        except AssertionError as error:
            raise Violation(f"{name} did not obey SIGTERM within {END_WITHIN_S} s after the clock was moved\n"
                            f"{error}") from None

    def await_recovery(self, run, job, fault):
        seconds = job.await_step(patience=STEP_WITHIN_S)
        if not job.done():
            run.recovered(fault, seconds)

    def check(self, run, job, expected):
        super().check(run, job, expected)
        for role in job.servers():
            for process in role.lives:
                # A clone keeps its lease unless its worker was told to end.
                if "goes to" in process.text() and len(job.roles["worker0"].lives) == 1:
                    raise Violation(f"a healthy clone lost its lease:\n{process.text()[-2000:]}")
