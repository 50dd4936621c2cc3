"""Shortage of memory: a full --state_dir at the start and in mid-run, and limits on address space and descriptors."""
import os
import resource
import signal
import subprocess

import engine
from engine import Fault, TrainingFault
from job import Job
from processes import clone_pids

STATE_FS_KIB = 8192  # several times the mapped state of the small model
# Exit codes of a process that lacks memory or descriptors: it refuses with a message, or the C++ library aborts it.
NO_MEMORY_CODES = {1, 65, 66, 70, 127, 134, 200, 201, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS}


class FullState(TrainingFault):
    """Fills the file system of --state_dir before a server starts or while it runs."""
    NAME = "memory_full"
    SHAPES = (engine.SYNC, engine.ASYNC)
    NEEDS_ROOT = True

    def missing(self):
        return super().missing() or ("" if os.environ.get("PUSHPULL_OWN_MOUNTS") else "needs a mount namespace")

    def make_job(self, run, shape):
        run.state = run.folder / "state"
        run.state.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={STATE_FS_KIB}k", "none", str(run.state)], check=True)
        return Job(run.folder, shape, state_dir=run.state)

    def run(self, run):
        try:
            super().run(run)
        finally:
            subprocess.run(["umount", "-l", str(run.folder / "state")], check=False)

    def fill(self, run):
        """Fills the file system of --state_dir with a file named ballast."""
        with open(run.state / "ballast", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(65536))
            except OSError:
                pass

    def start(self, run, job):
        run.at_start = run.rng.random() < 0.5
        if run.at_start:
            self.fill(run)
            job.state_is_mapped = False
            run.injected("--state_dir full when the server starts")
        super().start(run, job)

    def inject(self, run, job):
        if not job.roles["ps0"].running():
            return None
        ballast = run.state / "ballast"
        if ballast.exists():
            # With room again, the next server maps its state and continues from the newest checkpoint.
            job.expect_no_loss("a server without mapped state")
            job.signal("ps0", signal.SIGKILL)
            job.roles["ps0"].process.popen.wait()
            ballast.unlink()
            job.await_step()
            job.state_is_mapped = "anonymous memory" not in job.roles["ps0"].process.text()
            return "server killed in anonymous memory, then room"
        self.fill(run)
        # The running server has its memory already; the next one finds the state file and needs no room.
        if run.rng.random() < 0.7:
            job.signal("ps0", signal.SIGKILL)
            job.await_step()
            fault = "--state_dir full in mid-run, server killed"
        else:
            job.pause(run.rng.uniform(0.05, 0.3))
            fault = "--state_dir full in mid-run"
        if run.rng.random() < 0.5:
            ballast.unlink()
        else:
            job.state_is_mapped = "anonymous memory" not in job.roles["ps0"].process.text()
            if job.state_is_mapped:
                ballast.unlink()
        return fault

    def calm(self, run, job):
        (run.state / "ballast").unlink(missing_ok=True)


class Limits(TrainingFault):
    """Limits the address space or the descriptors of a process, for a moment, to little more than it has."""
    NAME = "memory_limits"
    SHAPES = (engine.SYNC, engine.ASYNC)
    INJECTIONS = 20

    def make_job(self, run, shape):
        job = Job(run.folder, shape)
        job.always_tolerated = set(NO_MEMORY_CODES)
        run.limited = {}
        return job

    @staticmethod
    def used(pid, what):
        """Returns the descriptors, or the bytes of address space, that the process has now."""
        if what == resource.RLIMIT_NOFILE:
            return len(os.listdir(f"/proc/{pid}/fd"))
        with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
            return int(file.read().split()[0]) * resource.getpagesize()

    @staticmethod
    def lift(pid, what, before):
        """Restores a limit. The clones that a supervisor has started meanwhile have inherited its limit. With too few
        descriptors to connect, such a clone would wait until its --peer_deadline."""
        for process in [pid, *clone_pids(pid).values()]:
            try:
                resource.prlimit(process, what, before)
            except ProcessLookupError:
                pass

    def inject(self, run, job):
        what = run.rng.choice((resource.RLIMIT_AS, resource.RLIMIT_NOFILE))
        candidates = [(role.name.rstrip("0123456789"), role.pid) for role in job.roles.values() if role.running()]
        for worker in job.workers():
            if worker.running():
                candidates += [("clone", pid) for pid in clone_pids(worker.pid).values()]
        name, pid = run.rng.choice(candidates)
        if name == "ps":
            job.expect_no_loss("a server at its limit")
        slack = run.rng.choice((0, 1 << 20, 16 << 20)) if what == resource.RLIMIT_AS else run.rng.choice((0, 1, 3))
        try:
            before = resource.prlimit(pid, what)
            resource.prlimit(pid, what, (self.used(pid, what) + slack, before[1]))
        except (ProcessLookupError, FileNotFoundError):
            return None
        kill = run.rng.random() < 0.3
        if kill and name == "clone":
            os.kill(pid, signal.SIGKILL)
        job.pause(run.rng.uniform(0.1, 0.8))
        self.lift(pid, what, before)
        who = {"ps": "server", "worker": "supervisor"}.get(name, name)
        return f"{'address space' if what == resource.RLIMIT_AS else 'descriptors'} of {who}"


class LimitedStart(Fault):
    """Starts a server with too little address space or too few descriptors. Such a server must not damage its files."""
    NAME = "memory_start"
    INJECTIONS = 10

    def run(self, run):
        expected = run.reference(engine.SYNC)
        with Job(run.folder, engine.SYNC) as job:
            job.always_tolerated = set(NO_MEMORY_CODES)
            job.start_all()
            job.await_step(beyond=30)
            role = job.roles["ps0"]
            usual = role.prefix
            while run.fault_due() and not job.done():
                job.pause(run.rng.uniform(0.05, 0.3))
                if job.done() or not role.running():
                    break
                limit = run.rng.choice((f"--as={run.rng.randrange(20, 500) << 20}",
                                        f"--nofile={run.rng.randrange(4, 60)}"))
                role.prefix = ("prlimit", limit)
                job.signal("ps0", signal.SIGKILL)
                role.process.popen.wait()
                job.restart_ended()
                job.pause(run.rng.uniform(0.1, 0.6))
                role.prefix = usual
                if role.running():
                    # The server started in spite of the limit, perhaps without mapped state.
                    job.state_is_mapped = "anonymous memory" not in role.process.text()
                    job.signal("ps0", signal.SIGKILL)
                run.injected(limit.split("=")[0].lstrip("-").replace("as", "address space").replace(
                    "nofile", "descriptors") + " of a starting server")
                seconds = job.await_step()
                job.state_is_mapped = True
                if not job.done():
                    run.recovered("starting server", seconds)
            job.finish()
            job.check(expected)
