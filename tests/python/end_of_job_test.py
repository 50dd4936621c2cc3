"""How a job ends for the clones that compute meanwhile, and for those that end too soon."""
import itertools
import os
import shutil
import signal
import time
from unittest import mock

import numpy

from support import PythonJobTest, config_text, main

from checkpoint_test import write_checkpoint
import pushpull
import pushpull.checkpoint
from pushpull import __main__ as command
from pushpull import _end_of_run

EARLY = """
import numpy, pushpull
trainer = pushpull.numpy.Trainer(pushpull.connect(), {"a": numpy.ones(3, numpy.float32)})
for batch in trainer.batches(40):
    trainer.push({}, samples=len(batch), loss=1.0)
    if batch.position == 4:
        break
print("ended early")
"""

# A clone that may begin only when ps_server has ended, or be killed then, and the supervisor of its job.
LATE = """
import os, socket, sys, time, numpy, pushpull
def server_listens():
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(os.environ["PUSHPULL_PS"].removeprefix("unix:")) == 0
while sys.argv[1] != "in time" and server_listens():
    time.sleep(0.1)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
trainer = pushpull.numpy.Trainer(pushpull.connect(), {"a": numpy.ones(3, numpy.float32)})
for batch in trainer.batches(40):
    trainer.push({}, samples=len(batch), loss=1.0)
print("trained")
"""
# A clone that trains in another process.
LAUNCHER = """
import subprocess, sys
sys.exit(subprocess.run([sys.executable, *sys.argv[1:]], check=False).returncode)
"""
SUPERVISOR = """
import sys, pushpull
from pushpull import _supervisor
_supervisor.WAIT_IN_VAIN_S = 1.0
num_clones = int(sys.argv[3])
with pushpull.LocalServer(sys.argv[1], sys.argv[2], num_clones, flags=["--lease=2s"]) as server:
    options = _supervisor.Options(server.address, num_clones, 1, 0, sys.argv[4:], server)
    sys.exit(_supervisor.Supervisor(options).run())
"""
# Clone 0 computes its first batch until the run is said to have ended, and clone 1 makes all steps meanwhile.
EVALUATES = """
import os, pathlib, sys, time, numpy, pushpull
from pushpull._end_of_run import END_OF_RUN
has_begun = pathlib.Path(sys.argv[1])
clone = os.environ["PUSHPULL_CLONE"]
trainer = pushpull.numpy.Trainer(pushpull.connect(), {"a": numpy.ones(3, numpy.float32)})
while clone == "1" and not has_begun.exists():
    time.sleep(0.1)
for batch in trainer.batches(40):
    has_begun.touch()
    while clone == "0" and not os.path.exists(os.environ[END_OF_RUN]):
        time.sleep(0.1)
    trainer.push({}, samples=len(batch), loss=1.0)
print("trained as clone", clone)
"""
# Stands for a ps_server that does not end after training.
LINGERS = """#!/bin/sh
echo "] listening on unix:nowhere"
exec sleep 1000
"""
# Ends training while its clone runs.
PUBLISHES = """
import shutil, sys
shutil.copytree(sys.argv[1], sys.argv[2])
print("published")
"""


class ServerThatEnds:
    """Stands for a LocalServer that ends with 0 after some waits for its end."""

    def __init__(self, train_dir, waits):
        self.train_dir = train_dir
        self.waits = waits
        self.was_ended = False

    def wait(self, timeout):
        del timeout
        self.waits -= 1
        return 0 if self.waits < 0 else None

    def check(self):
        pass

    def end(self):
        self.was_ended = True


class EndOfJob(PythonJobTest):

    def train(self, trainer, seconds=None):
        """Trains to the end. Returns the final value and its version. seconds: how long the third batch takes."""
        value = trainer._arrays["a"]
        for batch in trainer.batches(40):
            if batch.position == 2 and seconds is not None:
                time.sleep(seconds)
            trainer.push({"a": numpy.full_like(value, 0.1)}, samples=len(batch), loss=1.0)
        return value, trainer.ps.last_version

    def trainer_of(self, ps):
        trainer = pushpull.numpy.Trainer(ps, {"a": numpy.ones(5000, numpy.float32)}, show_progress=False)
        self.addCleanup(trainer.close)
        return trainer

    def test_clone_that_computes_when_the_job_ends_gets_the_last_weights(self):
        steps = 20
        for tasks in (1, 2):  # two: in processes of their own
            with self.subTest(tasks=tasks):
                run = f"run{tasks}"
                config = self.write_config(sync="false", steps=steps, batch=8)
                cluster = ",".join(f"{self.address(run)}.{i}" for i in range(tasks))
                servers = [self.start(f"{run}.{i}.log", "ps_server", f"--pipeline_config_path={config}", "--state_dir=",
                                      f"--train_dir={self.folder / run}", f"--cluster={cluster}", f"--task_index={i}",
                                      "--num_replicas=2", "--lease=20s") for i in range(tasks)]
                trainers = [self.trainer_of(pushpull.connect(cluster, clone=clone, num_clones=2)) for clone in (0, 1)]
                # The other clone makes the last step meanwhile, and the heartbeats hear of the end. 4 s are much shorter
                # than half a lease, for which ps tasks in processes of their own wait.
                results = [self.in_thread(self.train, trainers[0], 4.0), self.in_thread(self.train, trainers[1])]
                values = [result() for result in results]
                for server in servers:
                    self.assertEqual(server.wait(), 0, server.text())
                stored = self.weights(run)["a"]
                for value, version in values:
                    self.assertEqual(version, steps)
                    numpy.testing.assert_array_equal(value, stored)

    def test_server_does_not_wait_longer_than_a_lease_for_a_clone_that_computes(self):
        with pushpull.LocalServer(config_text(sync="false", steps=20, batch=8), num_clones=2,
                                  flags=["--lease=2s"]) as server:
            slow, fast = [self.trainer_of(server.connect(clone)) for clone in (0, 1)]
            batches = slow.batches(40)
            next(batches)
            self.train(fast)
            self.assertEqual(server.wait(60), 0)
            slow.push({}, samples=8, loss=1.0)
            self.assertEqual(list(batches), [])  # the clone knows that training has ended
            self.assertLess(slow.ps.last_version, 20)

    def write_server_that_lingers(self):
        (self.folder / "ps_server").write_text(LINGERS)
        (self.folder / "ps_server").chmod(0o700)

    def one_command(self, log, steps, *program, **changes):
        """Runs `pushpull worker` with a server of its own, train_dir "run" and a limit of steps. Returns its output."""
        begun = time.monotonic()
        worker = self.start_python(log, "-m", "pushpull", "worker", f"--train_dir={self.folder / 'run'}",
                                   f"--pipeline_config_path={self.write_config(steps=steps, batch=8)}", *program, **changes)
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertLess(time.monotonic() - begun, 50, worker.text())  # a wait for the server's end takes 60 s
        return worker.text()

    def test_one_command_whose_clones_end_before_training_has(self):
        program = self.folder / "early.py"
        program.write_text(EARLY)
        said = self.one_command("worker.log", 1000, program)
        self.assertIn("[clone 0] ended early", said)
        self.assertIn("pushpull: all clones have ended before training has; ending ps_server", said)
        last = pushpull.steps(self.folder / "run")[-1]
        self.assertRegex(said, f"pushpull: the last checkpoint is of step {last}( of 1000)?\n")
        self.assertIn(last, (4, 5))

        # The folder gets the last checkpoint of another run.
        with pushpull.LocalServer(config_text(steps=20, batch=8), self.folder / "other") as server:
            self.train(self.trainer_of(server.connect()))
            self.assertEqual(server.wait(60), 0)
        shutil.copytree(self.folder / "other" / "ckpt-00000020", self.folder / "run" / "ckpt-00000020")
        program.write_text("print('does nothing')\n")
        said = self.one_command("again.log", 1000, program)
        self.assertIn("pushpull: all clones have ended before training has; ending ps_server", said)
        self.assertIn(f"pushpull: the last checkpoint is of step {last}\n", said)

    def test_one_command_that_continues_a_finished_run(self):
        program = self.folder / "late.py"
        program.write_text(LATE)
        said = self.one_command("whole.log", 20, program, "in time")
        self.assertNotIn("all clones have ended before training has", said)
        for name, text, step in (("nothing", "print('does nothing')", 20),
                                 ("early", EARLY.replace("batch.position == 4", "True"), 21)):
            program = self.folder / f"{name}.py"
            program.write_text(text)
            said = self.one_command(f"{name}.log", 1000, program)
            self.assertIn("pushpull: all clones have ended before training has; ending ps_server", said)
            self.assertRegex(said, r"pushpull: the last checkpoint is of step \d+( of 1000)?\n")
            self.assertIn(pushpull.steps(self.folder / "run")[-1], (step - 1, step))

    def test_one_command_whose_server_has_not_begun_its_epoch(self):
        self.write_server_that_lingers()
        (self.folder / "nothing.py").write_text("print('does nothing')\n")
        write_checkpoint(self.folder / "run", 20, [], [], training_done=True)
        (self.folder / "run" / "EPOCH").write_text("1\n")
        said = self.one_command("worker.log", 1000, self.folder / "nothing.py", PUSHPULL_BIN_DIR=str(self.folder))
        self.assertIn("pushpull: all clones have ended before training has; ending ps_server", said)
        self.assertIn("pushpull: the last checkpoint is of step 20\n", said)

    def await_end(self, server, results, old_end=None):
        """Waits for a server after step 20 of 20. Returns what is said. results: of the readings of the checkpoint."""
        with mock.patch.object(command, "say") as say, mock.patch.object(command, "_POLL_S", 0.0), \
                mock.patch.object(pushpull.checkpoint, "newest", side_effect=results):
            command._await_end(server, 20, 20, old_end, None)
        return [call.args[0] for call in say.call_args_list]

    def test_end_of_server_whose_checkpoint_cannot_be_read_now(self):
        write_checkpoint(self.folder, 20, [], [], training_done=True)
        write_checkpoint(self.folder, 10, [], [])
        end, before = [pushpull.checkpoint.open_checkpoint(self.folder, step) for step in (20, 10)]
        stale = pushpull.checkpoint.UnreadableError("MANIFEST.json cannot be read: Stale file handle")
        damaged = pushpull.CheckpointError("MANIFEST.json is damaged")

        server = ServerThatEnds(self.folder, waits=10)
        self.assertEqual(self.await_end(server, itertools.repeat(stale)), [])
        self.assertEqual((server.waits < 0, server.was_ended), (True, False))
        self.assertEqual(self.await_end(ServerThatEnds(self.folder, waits=100), [stale, stale, end]), [])
        # The clones have reported the end, so the checkpoint is not of the run that was finished before.
        self.assertEqual(self.await_end(ServerThatEnds(self.folder, waits=100), [end], end.version), [])

        ended_early = "all clones have ended before training has; ending ps_server"
        for result, said in ((stale, f"the last checkpoint cannot be read: {stale}"),
                             (damaged, f"the last checkpoint cannot be read: {damaged}"),
                             (before, "the last checkpoint is of step 10 of 20")):
            server = ServerThatEnds(self.folder, waits=100)
            self.assertEqual(self.await_end(server, [stale, before, result]), [ended_early, said])
            self.assertTrue(server.was_ended)

        with mock.patch.object(command, "_SERVER_END_S", 0.0):
            self.assertEqual(self.await_end(ServerThatEnds(self.folder, waits=100), itertools.repeat(stale)),
                             [f"{stale}, so it is not known whether training has ended; ending ps_server"])

    def test_signal_while_one_command_waits_for_the_end_of_its_server(self):
        self.write_server_that_lingers()
        program = self.folder / "publishes.py"
        program.write_text(PUBLISHES)
        write_checkpoint(self.folder / "new", 20, [], [], training_done=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number):
                worker = self.start_python(f"{number.name}.log", "-m", "pushpull", "worker",
                                           f"--train_dir={self.folder / number.name}", "--pipeline_config_path="
                                           f"{self.write_config()}", program, self.folder / "new",
                                           self.folder / number.name, PUSHPULL_BIN_DIR=str(self.folder))
                worker.wait_for("published")
                time.sleep(1.5)
                self.assertIsNone(worker.popen.poll(), worker.text())
                worker.kill(number)
                self.assertEqual(worker.wait(30), 143, worker.text())
                self.assertNotIn("Traceback", worker.text())
                self.assertNotIn("all clones have ended before", worker.text())

    def test_one_command_whose_program_does_not_train(self):
        program = self.folder / "nothing.py"
        program.write_text("print('does nothing')\n")
        worker = self.start_python("worker.log", "-m", "pushpull", "worker", f"--train_dir={self.folder / 'run'}",
                                   f"--pipeline_config_path={self.write_config()}", program)
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertIn("pushpull: there is no checkpoint\n", worker.text())

    def test_clones_that_are_too_late_for_a_run_that_has_ended(self):
        (self.folder / "supervisor.py").write_text(SUPERVISOR)
        (self.folder / "late.py").write_text(LATE)
        for how, message in (("in time", "[clone 0] trained\n"),
                             ("late", "training and ps_server have ended; ending the clones that still wait"),
                             ("killed", "training has ended, so clone 0 is not started\n")):
            with self.subTest(how=how):
                worker = self.start_python(f"{how}.log", self.folder / "supervisor.py", self.write_config(steps=3),
                                           self.folder / "run", 1, self.folder / "late.py", how)
                self.assertEqual(worker.wait(60), 0, worker.text())  # it used to wait for the peer deadline, 300 s
                self.assertIn(message, worker.text())
        (self.folder / "launcher.py").write_text(LAUNCHER)
        worker = self.start_python("launcher.log", self.folder / "supervisor.py", self.write_config(steps=3),
                                   self.folder / "run", 1, self.folder / "launcher.py", self.folder / "late.py", "late")
        self.assertEqual(worker.wait(60), 0, worker.text())  # it used to wait for the peer deadline, 300 s
        self.assertIn("PeerLostError: training has ended, and ps_server with it", worker.text())
        self.assertIn("pushpull: clone 0 ended with exit code 1 because training and ps_server have ended", worker.text())
        with pushpull.LocalServer(self.write_config(steps=3), self.folder / "run", flags=["--lease=2s"]) as server:
            self.assertEqual(server.wait(60), 0)
            with self.assertRaisesRegex(pushpull.Error, f"the run in {self.folder}/run has ended"):
                server.connect()

    def test_clone_that_evaluates_past_the_end_of_the_run_goes_on_after_its_loop(self):
        for name, text in (("supervisor.py", SUPERVISOR), ("launcher.py", LAUNCHER), ("evaluates.py", EVALUATES)):
            (self.folder / name).write_text(text)
        worker = self.start_python("evaluates.log", self.folder / "supervisor.py",
                                   self.write_config(sync="false", steps=3, batch=8), self.folder / "run", 2,
                                   self.folder / "launcher.py", self.folder / "evaluates.py", self.folder / "has_begun")
        self.assertEqual(worker.wait(60), 0, worker.text())
        for clone in (0, 1):
            self.assertIn(f"[clone {clone}] trained as clone {clone}\n", worker.text())

    def test_only_an_unbroken_wait_after_the_end_of_the_run_is_in_vain(self):
        now = 0.0
        mark = self.folder / "run_has_ended"
        check = _end_of_run.EndOfRunCheck("unix:ps", lambda: now)

        def wait(seconds):
            nonlocal now
            for _ in range(int(10 * seconds)):
                now += 0.1
                check()

        with mock.patch.dict(os.environ, {_end_of_run.END_OF_RUN: str(mark), "PUSHPULL_PS": "unix:ps",
                                          "PUSHPULL_CLONE": "3"}):
            wait(100)  # for a server that may come back
            _end_of_run.announce_end(str(mark))
            wait(4.5)
            now += 60  # it computes
            wait(4.5)
            self.assertFalse(_end_of_run.was_too_late(str(mark), 3))
            with self.assertRaisesRegex(pushpull.PeerLostError, "training has ended"):
                wait(1)
            self.assertTrue(_end_of_run.was_too_late(str(mark), 3))


if __name__ == "__main__":
    main()
