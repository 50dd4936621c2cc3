"""Signals to every process of the job, at any time of its life: SIGKILL, SIGTERM, and SIGSTOP followed by SIGCONT.

A third of the signals reach a process within 300 ms of its start. The last signal of a run comes when the last step has
been applied.
"""
import signal
import time

from engine import TrainingFault
from processes import send

YOUNG_S = 0.3
LONGEST_STOP_S = 1.5
# The most signals to clones in one life of a supervisor. The bound is low because a supervisor waits longer before each
# restart of a clone, and gives up on a clone that dies 20 times in a row.
CLONE_KILLS = 3


class Kill(TrainingFault):
    NAME = "kill"
    INJECTIONS = 40

    def start(self, run, job):
        super().start(run, job)
        run.clone_kills = {}

    def targets(self, run, job):
        """Returns (role, clone or None) of every process that may get a signal now; some are listed more than once, to
        be chosen more often."""
        found = []
        for role in job.roles.values():
            if role.running():
                found += [(role.name, None)] * (3 if role.is_server else 1)
        for role in job.workers():
            if role.running() and run.clone_kills.get(role.pid, 0) < CLONE_KILLS:
                found += [(role.name, clone) for clone in range(job.shape.clones)] * 2
        return found

    def await_life(self, job, name, clone, other_than):
        """Waits for the next life of a killed process. Returns its pid, or None if it does not start in time or the job
        is done."""
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline and not job.done():
            job.restart_ended()
            pid = job.clone(name, clone) if clone is not None else job.roles[name].pid
            if pid is not None and pid != other_than:
                return pid
            time.sleep(0.002)
        return None

    def send_signal(self, run, job, name, clone, number):
        """Sends a signal to a role's process or to a clone of it. Returns the pid, or None if there is no process."""
        if clone is None:
            pid = job.roles[name].pid
            job.signal(name, number)
            return pid
        pid = job.clone(name, clone)
        if pid is None or not send(pid, number):
            return None
        worker = job.roles[name].pid
        run.clone_kills[worker] = run.clone_kills.get(worker, 0) + 1
        return pid

    def stop(self, run, job, name, clone):
        """Stops a process for a moment."""
        pid = self.send_signal(run, job, name, clone, signal.SIGSTOP)
        if pid is None:
            return
        try:
            job.pause(run.rng.uniform(0.02, LONGEST_STOP_S))
        finally:
            send(pid, signal.SIGCONT)

    def inject(self, run, job):
        targets = self.targets(run, job)
        if not targets:
            return None
        name, clone = run.rng.choice(targets)
        number = run.rng.choices((signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP), (6, 2, 2))[0]
        young = run.rng.random() < 1 / 3
        if young:
            # The present life is killed first, which counts as a fault too.
            killed = self.send_signal(run, job, name, clone, signal.SIGKILL)
            if killed is None:
                return None
            run.injected(self.label(signal.SIGKILL, name, clone, False))
            if self.await_life(job, name, clone, killed) is None:
                return None
            time.sleep(run.rng.uniform(0.0, YOUNG_S))
            if job.done() or not job.roles[name].running():
                return None
        if number == signal.SIGSTOP:
            self.stop(run, job, name, clone)
        elif self.send_signal(run, job, name, clone, number) is None:
            return None
        return self.label(number, name, clone, young)

    @staticmethod
    def label(number, name, clone, young):
        who = "clone" if clone is not None else name.rstrip("0123456789")
        who = {"ps": "server", "worker": "supervisor"}.get(who, who)
        if name == "ps1":
            who = "task 1"
        return f"{signal.Signals(number).name} {who}{', just started' if young else ''}"

    def calm(self, run, job):
        """Kills a server once more when the last step has been applied."""
        deadline = time.monotonic() + 120
        while not job.done() and job.applied() < job.shape.steps and time.monotonic() < deadline:
            job.restart_ended()
            time.sleep(0.002)
        time.sleep(run.rng.uniform(0.0, 0.15))
        job.restart_ended()
        running = [role.name for role in job.servers() if role.running()]
        if running and run.fault_due():
            name = run.rng.choice(running)
            job.signal(name, signal.SIGKILL)
            run.injected(f"SIGKILL {'server' if name == 'ps0' else 'task 1'} at the end")
