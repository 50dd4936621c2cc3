"""A full, broken or slow disk under ps_server: at random calls, and at every single call that writes."""
import dataclasses
import signal
import time

import engine
import fault_shim
import oracle
from engine import Fault, TrainingFault, Violation
from fault_shim import Shim
from job import Job, Shape

# The exit code of a ps_server whose disk fails when it starts or writes the job's last checkpoint: the error may pass.
DISK_CODES = {200}
SHORT_JOB = Shape(steps=40, checkpoint_steps=10, clones=1)


class Disk(TrainingFault):
    """Makes a share of ps_server's file calls fail for a moment. In half of the cases it kills the server meanwhile."""
    NAME = "disk"
    SHAPES = (engine.SYNC, engine.SYNC, engine.ASYNC)
    INJECTIONS = 40
    MIXES = ((fault_shim.NO_SPACE,), (fault_shim.INPUT_OUTPUT,), (fault_shim.SHORT_WRITE,), (fault_shim.SLOW_SYNC,),
             (fault_shim.NO_SPACE, fault_shim.INPUT_OUTPUT, fault_shim.SHORT_WRITE, fault_shim.SLOW_SYNC),
             (fault_shim.FAILED_READ,))

    def missing(self):
        return fault_shim.missing()

    def make_job(self, run, shape):
        shape = dataclasses.replace(shape, checkpoint_steps=20)
        run.shim = Shim(run.folder / "control", [run.folder / "run", run.folder / "state"])
        job = Job(run.folder, shape)
        job.roles["ps0"].env = run.shim.environment()
        job.always_tolerated = set(DISK_CODES)
        return job

    def inject(self, run, job):
        mix = run.rng.choice(self.MIXES)
        share = run.rng.choice((0.05, 0.3, 1.0))
        before = run.shim.random_faults()
        run.shim.fail_at_random(share, sum(mix), slow_ms=run.rng.choice((20, 200)), seed=run.rng.getrandbits(32))
        restart = run.rng.random() < 0.5 or mix == (fault_shim.FAILED_READ,)
        if restart and job.roles["ps0"].running():
            # A server with mapped state loses nothing; one that could not map it goes back to a checkpoint.
            job.state_is_mapped = "anonymous memory" not in job.roles["ps0"].process.text()
            job.signal("ps0", signal.SIGKILL)
        job.pause(run.rng.uniform(0.1, 0.6))
        run.shim.fail_at_random(0, 0)
        faults = run.shim.random_faults() - before
        if faults == 0:
            return None
        run.injections += faults - 1
        name = "+".join(fault_shim.ACTIONS[action] for action in mix)
        run.campaign.table.injected(self.NAME, self.label(name, restart), faults - 1)
        return self.label(name, restart)

    @staticmethod
    def label(name, restart):
        return name + (", server killed and started" if restart else "")


class DiskCalls(Fault):
    """Covers every call that writes a checkpoint, state, EPOCH or event file; a recording pass over a short job finds
    them. Each run takes the next case: one call fails, or the process is killed right after it. Then the server is
    killed once more, a new one starts on a working disk, and the job must end with the same bits."""
    NAME = "disk_calls"
    INJECTIONS = 1
    SHAPES = (SHORT_JOB,)
    WRITES = ("create", "write", "fsync", "close", "truncate", "allocate", "map", "rename", "mkdir", "unlink")

    def missing(self):
        return fault_shim.missing()

    def __init__(self):
        self._cases = None

    def cases(self, run):
        """Returns (life, operation, glob, nth, action) of each case, in an order that does not depend on threads.

        `life` is 0 for a server that starts on an empty folder and 1 for a server that continues a job.
        """
        if self._cases is None:
            folder = run.folder / "recording"
            folder.mkdir()
            records = [folder / "record0", folder / "record1"]
            with self.make_job(folder) as job:
                self.two_lives(job, [job.shim.environment(record=record) for record in records])
                job.finish()
            self._cases = [(life, operation, glob, nth, action)
                           for life, record in enumerate(records)
                           for (operation, glob), count in sorted(self.count(record, folder).items())
                           for nth in range(1, count + 1)
                           for action in ("fail", "kill")]
        return self._cases

    def count(self, record, folder):
        """Returns (operation, glob) -> number of calls in the record."""
        counts = {}
        for operation, glob in fault_shim.read_record(record, folder):
            if operation in self.WRITES:
                call = operation, glob.replace(str(folder), "*")
                counts[call] = counts.get(call, 0) + 1
        return counts

    def make_job(self, folder):
        shim = Shim(folder / "control", [folder / "run", folder / "state"])
        job = Job(folder, SHORT_JOB, evaluator=False)
        job.shim = shim
        job.roles["ps0"].env = shim.environment()  # for the lives without a rule
        job.always_tolerated = DISK_CODES | {-signal.SIGKILL}
        return job

    @staticmethod
    def two_lives(job, environments):
        """Starts the job with one environment per life of ps0. Kills the first life in the middle of the job if there
        is a second one."""
        job.start("ps0", env=environments[0])
        for worker in job.workers():
            job.start(worker.name)
        if len(environments) == 1:
            return
        job.await_step(beyond=SHORT_JOB.steps // 2)
        job.signal("ps0", signal.SIGKILL)
        job.roles["ps0"].process.popen.wait()
        job.start("ps0", env=environments[1])

    def run(self, run):
        expected = run.reference(SHORT_JOB)
        cases = self.cases(run)
        life, operation, glob, nth, action = cases[run.index % len(cases)]
        error = "kill" if action == "kill" else fault_shim.usual_error(operation)
        fault = f"{action} {operation} {glob.split('/', 1)[1]}"
        with self.make_job(run.folder) as job:
            with_rule = job.shim.environment([(operation, glob, nth, error)])
            self.two_lives(job, [with_rule] if life == 0 else [job.roles["ps0"].env, with_rule])
            self.kill_after_fault(run, job)
            job.finish()
            if job.shim.rules_hit() == 0:
                run.figure(f"{fault} {nth} in life {life}: the run did not reach this call")
            else:
                run.injected(fault)
            job.check(expected)
        if run.index + 1 == len(cases):
            run.figure(f"the last of {len(cases)} cases (calls x fail, kill) has been run")

    def kill_after_fault(self, run, job):
        """Kills the server once more after the fault, and checks that the durable checkpoint survives."""
        deadline = time.monotonic() + 20
        while job.shim.rules_hit() == 0 and not job.done() and time.monotonic() < deadline:
            job.restart_ended()
            time.sleep(0.002)
        job.await_step()
        role = job.roles["ps0"]
        if job.done() or not role.running():
            return
        durable = oracle.newest_verified(job.train_dir)
        job.state_is_mapped = "anonymous memory" not in role.process.text()
        job.signal("ps0", signal.SIGKILL)
        role.process.popen.wait()
        if oracle.newest_verified(job.train_dir) < durable:
            raise Violation(f"checkpoint {durable} was intact before the server was killed, and now it is not")
        begin = time.monotonic()
        job.await_step()
        run.recovered("server killed after the fault", time.monotonic() - begin)
