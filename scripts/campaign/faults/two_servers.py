"""Two servers on one train_dir: the first is frozen, the second takes over, and then the first wakes up."""
import dataclasses
import json
import signal
import time

import oracle
from engine import SYNC, Fault
from job import Job

SHAPE = dataclasses.replace(SYNC, checkpoint_steps=30)
# How long a replaced server may take to end after SIGTERM.
END_WITHIN_S = 60


class TwoServers(Fault):
    """Checks that a server which was replaced does not publish, remove or overwrite anything after it wakes up.

    The LOCK file is removed while the first server is frozen, as if the file system had no locks. The second server
    stands for one on another host, so it has a different --state_dir and begins with the newest checkpoint.
    """
    NAME = "two_servers"
    INJECTIONS = 8
    SHAPES = (SHAPE,)

    def epochs(self, train_dir):
        """Returns step -> epoch in the manifest, for all checkpoints that can be read."""
        found = {}
        for step in oracle.checkpoint_steps(train_dir):
            path = oracle.checkpoint_folder(train_dir, step) / "MANIFEST.json"
            try:
                found[step] = int(json.loads(path.read_text())["epoch"])
            except (FileNotFoundError, ValueError):
                continue
        return found

    def run(self, run):
        expected = run.reference(SHAPE)
        with Job(run.folder, SHAPE, evaluator=False) as job:
            job.start_all()
            # replace() appends another --state_dir to these arguments; the last one counts.
            usual = list(job.roles["ps0"].arguments)
            while run.fault_due() and not job.done():
                beyond = (oracle.checkpoint_steps(job.train_dir) or [0])[-1] + run.rng.randrange(5, 40)
                job.await_step(beyond=min(beyond, SHAPE.steps - 1))
                if job.done() or job.applied() >= SHAPE.steps - 5:
                    break
                self.replace(run, job, usual)
            job.finish()
            job.floors = []  # a server on another host goes back to the checkpoint, below the applied version
            job.check(expected)

    def replace(self, run, job, usual):
        """Freezes the server, starts its replacement, wakes the old one up, and checks what it did."""
        role = job.roles["ps0"]
        old = role.process
        old.kill(signal.SIGSTOP)
        old_epoch = int((job.train_dir / "EPOCH").read_text().split()[0])
        (job.train_dir / "LOCK").unlink()
        (run.folder / "ps0.sock").unlink()  # the new server listens at the same address
        job.state_dir = run.folder / f"state{len(role.lives)}"
        role.arguments = [*usual, f"--state_dir={job.state_dir}"]
        durable = oracle.newest_verified(job.train_dir)
        role.process = None
        new = job.start("ps0")
        begin = time.monotonic()
        new.wait_for("serving version")
        job.floors.append(oracle.Floor(new.log_path, 0, durable, "the takeover"))
        job.floors[-1].check()
        before = self.epochs(job.train_dir)
        new.kill(signal.SIGSTOP)  # so that only the old server can change files now
        try:
            old.kill(signal.SIGCONT)
            if run.rng.random() < 0.5:
                old.kill(signal.SIGTERM)
                fault = "old server told to end"
            else:
                fault = "old server continues"
                time.sleep(run.rng.uniform(0.1, 1.0))
                old.kill(signal.SIGTERM)
            old.wait(END_WITHIN_S)
        finally:
            new.kill(signal.SIGCONT)
        run.injected(fault)
        oracle.check_published_only_by(before, self.epochs(job.train_dir), old_epoch)
        job.await_step()
        run.recovered(fault, time.monotonic() - begin)
