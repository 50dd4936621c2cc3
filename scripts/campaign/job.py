"""The job under test: real processes of ps_server, worker (with its clones) and evaluator.

This module plays the part of an init system. It restarts a process that ended because of a fault; a process that ends
for any other reason is a violation. The applied version is read from the files of the mapped state, so that the check
is cheap and works while a process is stopped.
"""
import dataclasses
import pathlib
import signal
import time

import oracle
from harness import SYNTHETIC, config_text
from oracle import Violation
from processes import Process, clone_pids
from state_files import applied_version

# The learning rate is low, so that the values stay finite over 2,000 steps on random images.
OPTIMIZER = ("momentum_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.0005 } } "
             "momentum_optimizer_value: 0.9 }")
LEASE_S = 2
PEER_DEADLINE_S = 40
PATIENCE_S = 60  # a longer wait for a step, or for the end of a process, counts as a hang
RESTART_PAUSE_S = 0.05
# Exit codes of a process that was ended by a signal, either by its handler or before the handler was installed.
BY_SIGNAL = {143, -signal.SIGTERM, -signal.SIGKILL}
NO_REASON = "no reason"
MAX_LIVES = 150  # starts of one role; after that the restarts stop, as an init system's would


@dataclasses.dataclass(frozen=True)
class Shape:
    """The configuration of a job. In synchronous mode, jobs of equal shape end with the same bits."""
    sync: bool = True
    tasks: int = 1  # one ps_server process per task
    workers: int = 1
    clones: int = 2  # per worker
    steps: int = 600
    checkpoint_steps: int = 60
    batch: int = 8

    @property
    def mode(self):
        return "sync" if self.sync else "async"

    @property
    def replicas(self):
        return self.workers * self.clones

    def config(self):
        return config_text(batch=self.batch, sync=str(self.sync).lower(), steps=self.steps, optimizer=OPTIMIZER,
                           train=f"save_checkpoints_steps: {self.checkpoint_steps}",
                           eval_reader=SYNTHETIC.format(n=50, seed=2))

    def describe(self):
        return (f"{self.mode}, {self.tasks} tasks, {self.workers} workers of {self.clones} "
                f"clones, {self.steps} steps")


@dataclasses.dataclass
class Role:
    """A program of the job with its current process and all earlier ones. Each process is a "life" of the role."""
    name: str
    program: str
    arguments: list
    prefix: tuple = ()
    env: dict = None
    process: Process = None
    lives: list = dataclasses.field(default_factory=list)  # all processes so far, the current one last
    reasons: set = dataclasses.field(default_factory=set)  # exit codes besides 0 that the current life may end with
    tolerated: set = dataclasses.field(default_factory=set)  # exit codes besides 0 that every life may end with
    ended: int = None  # exit code of the last life, set when the role is not started again

    @property
    def is_server(self):
        return self.name.startswith("ps")

    @property
    def pid(self):
        return self.process.popen.pid

    def running(self):
        return self.process is not None and self.process.popen.poll() is None


class Job:
    """A job. Use it as a context manager, which ends all processes."""

    def __init__(self, folder, shape, state_dir=None, addresses=None, prefixes=None, env=None, evaluator=True,
                 server_flags=(), worker_flags=()):
        """Writes the config into `folder`; starts nothing.

        `addresses` lists the address of each task (default: unix sockets), `prefixes` maps a role's name to the words
        before its command, and `env` is the environment of all processes.
        """
        self.folder = pathlib.Path(folder)
        self.shape = shape
        self.train_dir = self.folder / "run"
        self.state_dir = pathlib.Path(state_dir or self.folder / "state")
        self.state_is_mapped = True  # if False, a restarted server may go back to the newest checkpoint
        self.always_tolerated = set()  # exit codes after which every process is started again
        self.floors = []
        self.notes = []
        self.drained_at = -PATIENCE_S  # time of the last SIGTERM to a server; it makes all servers drain
        self.config = self.folder / "pipeline.config"
        self.config.write_text(shape.config())
        (self.folder / "job.txt").write_text(shape.describe() + "\n")
        prefixes = prefixes or {}
        addresses = addresses or [f"unix:{self.folder}/ps{task}.sock" for task in range(shape.tasks)]
        self.roles = {}
        for task in range(shape.tasks):
            cluster = () if shape.tasks == 1 else (f"--tasks={shape.tasks}", f"--task_index={task}",
                                                   f"--cluster={','.join(addresses)}")
            listen = (f"--listen={addresses[0]}",) if shape.tasks == 1 else ()
            self._add(f"ps{task}", "ps_server", prefixes, env, *cluster, *listen,
                      f"--pipeline_config_path={self.config}", f"--train_dir={self.train_dir}",
                      f"--state_dir={self.state_dir}", f"--lease={LEASE_S}s", "--apply_threads=1", *server_flags)
        for worker in range(shape.workers):
            self._add(f"worker{worker}", "worker", prefixes, env, f"--ps={addresses[0]}",
                      f"--num_clones={shape.clones}", f"--num_workers={shape.workers}", f"--worker_index={worker}",
                      "--device=cpu", "--threads=1", f"--peer_deadline={PEER_DEADLINE_S}s", *worker_flags)
        if evaluator:
            self._add("evaluator", "evaluator", prefixes, env, f"--checkpoint_dir={self.train_dir}", "--device=cpu",
                      "--threads=1", f"--wait_secs={PATIENCE_S}")

    def _add(self, name, program, prefixes, env, *arguments):
        self.roles[name] = Role(name, program, list(arguments), prefixes.get(name, ()), env)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for role in self.roles.values():
            for process in role.lives:
                process.end()

    # Processes.

    def servers(self):
        return [role for role in self.roles.values() if role.is_server]

    def workers(self):
        return [role for role in self.roles.values() if role.program == "worker"]

    def start(self, name, env=None):
        """Starts a new life of the role, with the environment `env` if it is given. Returns its Process."""
        role = self.roles[name]
        role.process = Process(self.folder / f"{name}.{len(role.lives)}.log", role.program, *role.arguments,
                               prefix=role.prefix, env=env or role.env)
        role.lives.append(role.process)
        role.reasons = self.always_tolerated | role.tolerated
        role.ended = None
        return role.process

    def start_all(self):
        for name in self.roles:
            self.start(name)

    def signal(self, name, number):
        """Sends a signal to the role's process. If the signal may end it, its death counts as expected."""
        role = self.roles[name]
        if number in (signal.SIGTERM, signal.SIGKILL):
            role.reasons |= BY_SIGNAL
        if role.is_server:
            if number == signal.SIGTERM:
                self.drained_at = time.monotonic()
            if number in (signal.SIGTERM, signal.SIGKILL):
                self.expect_no_loss(f"{signal.Signals(number).name} of {name}")
        role.process.kill(number)

    def clone(self, name, index):
        """Returns the pid of a running clone, or None."""
        return clone_pids(self.roles[name].pid).get(index) if self.roles[name].running() else None

    def done(self):
        """Returns whether every server has ended with exit code 0, which means that the job is over."""
        return all(role.ended == 0 for role in self.servers())

    def restart_ended(self):
        """Restarts each process whose end was expected. Raises Violation if a process ended unexpectedly."""
        for role in self.roles.values():
            if role.process is None or role.ended is not None or role.running():
                continue
            code = role.process.popen.returncode
            if role.is_server and time.monotonic() - self.drained_at < PATIENCE_S:
                role.reasons.add(128 + signal.SIGTERM)
            if code == 0:
                role.ended = 0
            elif not role.is_server and self.done():
                # The servers are gone, so this process could not learn that the job is over.
                role.ended = code
                self.notes.append(f"{role.program} ended with {code} after the job's end")
                if code not in role.reasons | {200}:
                    raise Violation(f"{role.name} ended with {code} for {NO_REASON}:\n{role.process.text()[-2000:]}")
            elif code in role.reasons:
                if role.is_server and code not in BY_SIGNAL:
                    self.expect_no_loss(f"{role.name} ended with {code}")
                if len(role.lives) >= MAX_LIVES:
                    raise Violation(f"{role.name} died {MAX_LIVES} times:\n{role.process.text()[-2000:]}")
                time.sleep(RESTART_PAUSE_S)
                self.start(role.name)
            else:
                raise Violation(f"{role.name} ended with {code} for {NO_REASON}:\n{role.process.text()[-2000:]}")

    # Progress.

    def applied(self):
        """Returns the newest version that all tasks hold, or that the newest checkpoint holds; -1 if there is none."""
        version = applied_version(self.state_dir, self.shape.tasks) if self.state_is_mapped else -1
        steps = oracle.checkpoint_steps(self.train_dir)
        return max(version, steps[-1] if steps else -1)

    def expect_no_loss(self, why, version=None):
        """Requires that the next version that task 0 serves, in this life or a later one, is at least `version`.

        By default this is the version that survives a kill of the server now: the applied one if the state is mapped,
        otherwise the newest checkpoint. `check` looks at it. `why` is part of the message.
        """
        if version is None:
            version = self.applied() if self.state_is_mapped else oracle.newest_verified(self.train_dir)
        task0 = self.roles["ps0"]
        life = len(task0.lives) - 1
        if life < 0 or version < 0:
            return
        log = task0.lives[life].log_path
        self.floors.append(oracle.Floor(log, log.stat().st_size, version, why))

    def await_step(self, beyond=None, patience=PATIENCE_S):
        """Waits until a version newer than `beyond` (default: the present one) is applied or the job is done.

        Returns the seconds that this took. Raises Violation if it takes longer than `patience` seconds.
        """
        begin = time.monotonic()
        if beyond is None:
            beyond = self.applied()
        while True:
            self.restart_ended()
            if self.done() or self.applied() > beyond:
                return time.monotonic() - begin
            if time.monotonic() - begin > patience:
                raise Violation(f"no step after {beyond} within {patience} s\n{self.tails()}")
            time.sleep(0.005)

    def pause(self, seconds):
        """Lets the job run for a time; returns early when the job is done."""
        deadline = time.monotonic() + seconds
        while not self.done() and time.monotonic() < deadline:
            self.restart_ended()
            time.sleep(min(0.02, max(0.0, deadline - time.monotonic())))

    def finish(self, patience=None):
        """Waits until every process has ended by itself. Raises Violation after `patience` seconds without a step."""
        deadline = time.monotonic() + (patience or PATIENCE_S)
        newest = self.applied()
        while any(role.ended is None for role in self.roles.values() if role.process is not None):
            self.restart_ended()
            if (now := self.applied()) > newest:
                newest, deadline = now, time.monotonic() + (patience or PATIENCE_S)
            if time.monotonic() > deadline:
                names = [role.name for role in self.roles.values() if role.ended is None]
                raise Violation(f"{', '.join(names)} did not end within {patience or PATIENCE_S} s at step {newest}\n"
                                f"{self.tails()}")
            time.sleep(0.01)

    def tails(self):
        return "\n".join(f"---- {role.process.log_path.name}\n{role.process.text()[-1500:]}"
                         for role in self.roles.values() if role.process is not None)

    # Oracles over the whole run.

    def check(self, expected):
        """Applies the oracles to the finished job. Raises Violation.

        `expected` holds the shards of the undisturbed job, as oracle.shards() returns them; asynchronous mode does not
        use it.
        """
        manifest = oracle.check_final(self.train_dir, self.shape.steps)
        if self.shape.sync:
            oracle.check_identical(oracle.shards(self.train_dir, self.shape.steps), expected)
        else:
            oracle.check_exactly_once(oracle.marks_of(manifest), self.shape.steps, self.shape.replicas)
        for floor in self.floors:
            floor.check()
        oracle.check_epochs([process.text() for process in self.roles["ps0"].lives])
