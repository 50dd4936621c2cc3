"""`pushpull worker` restarts clones, ends them all, and leaves no process behind."""
import os
import pathlib
import re
import shutil
import signal
import sys
import time

from support import MOMENTUM, PROGRAMS, Process, PythonJobTest, clone_processes, environment, kill, main

import pushpull
from pushpull import _supervisor

ENDLESS = 1000000
ENDS_ITSELF = """
import numpy, pushpull
ps = pushpull.connect()
variables, values = [pushpull.Variable("a", (3,))], [numpy.ones(3, numpy.float32)]
ps.start(variables, values, num_samples=40)
for _ in range(3):
    ps.next_batch().gradient[:] = 0.1
    ps.finish(samples=8, loss=1.0)
{end}
ps.next_batch()
"""


def is_alive(pid):
    """Whether a process exists and has not ended. One that nobody waits for stays in the list of processes."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Supervisor(PythonJobTest):

    def start_job(self, *arguments, steps=ENDLESS, clones=2):
        server = self.start_server(self.write_config(steps=steps))
        return server, self.start_clones("perceptron.py", *arguments, clones=clones)

    def await_clones(self, worker, count):
        deadline = time.monotonic() + 60
        # What is found is returned, not looked up again: a process that executes its program just then has no
        # environment for a moment, and is not found.
        while len(clones := clone_processes(worker.popen.pid)) < count:
            self.assertLess(time.monotonic(), deadline, worker.text())
            time.sleep(0.05)
        return clones

    def await_end_of(self, pids):
        deadline = time.monotonic() + 20
        while any(map(is_alive, pids)):
            self.assertLess(time.monotonic(), deadline, "processes are left")
            time.sleep(0.02)

    def test_output_and_progress(self):
        server, worker = self.start_job(steps=20)
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertEqual(server.wait(), 0, server.text())
        for clone in (0, 1):
            self.assertIn(f"[clone {clone}] clone {clone} of 2 trains test\n", worker.text())
            self.assertIn(f"[clone {clone}] clone {clone} is done\n", worker.text())
        self.assertRegex(worker.text(), r"(?m)^step \d+/20 \d+\.\d% loss \d+\.\d+ lr 0\.05 \d+ samples/s")

    def test_output_that_cannot_be_written_does_not_end_training(self):
        config = self.write_config(steps=20)
        for case in ("full stdout", "full stderr", "closed stdout"):
            with self.subTest(case=case):
                if case.startswith("full"):
                    target = os.open("/dev/full", os.O_WRONLY)
                else:
                    reader, target = os.pipe()
                    os.close(reader)
                run = case.replace(" ", "_")
                server = self.start_server(config, run)
                worker = Process(self.folder / f"{run}.worker.log", sys.executable, "-m", "pushpull", "worker",
                                 f"--ps={self.address(run)}", "--num_clones=2", PROGRAMS / "perceptron.py",
                                 env=environment(), **{case.split()[1]: target})
                self.processes.append(worker)
                os.close(target)
                self.assertEqual(worker.wait(), 0, worker.text() + server.text())
                self.assertEqual(server.wait(), 0, server.text())
                self.assertEqual(pushpull.steps(self.folder / run)[-1], 20)
                lost = worker.text().count("pushpull: output of the clones cannot be written: [Errno ")
                self.assertEqual(lost, 0 if case == "full stderr" else 1, worker.text())
                self.assertEqual("[clone 0] clone 0 is done\n" in worker.text(), case == "full stderr")

    def test_output_that_was_closed_before_the_start(self):
        loop = PROGRAMS / "perceptron.py"
        for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
            for case, command in (("worker", ["-m", "pushpull", "worker", f"--ps={self.address('worker')}", loop]),
                                  ("usage", ["-m", "pushpull", "worker", "--nope"]),
                                  ("program", [loop])):
                with self.subTest(closed=closed, case=case):
                    server = None if case == "usage" else self.start_server(self.write_config(steps=5, batch=8), case)
                    process = Process(self.folder / "closed.log", "/bin/sh", "-c", f"exec \"$@\" {closed}", "sh",
                                      sys.executable, *map(str, command),
                                      env=environment(PUSHPULL_PS=self.address(case)))
                    self.processes.append(process)
                    self.assertEqual(process.wait(), 64 if case == "usage" else 0, process.text())
                    if server is not None:
                        self.assertEqual(server.wait(), 0, server.text())
                        self.assertEqual(pushpull.steps(self.folder / case)[-1], 5)
                        shutil.rmtree(self.folder / case)

    def test_output_that_nobody_reads_stops_nothing(self):
        program, done = self.folder / "chatty.py", self.folder / "done"
        program.write_text("import pathlib, sys, time\n"
                           "for _ in range(4000):\n    print('x' * 1000)\n"
                           "pathlib.Path(sys.argv[1]).touch()\ntime.sleep(1000)\n")
        for streams in (["stdout"], ["stdout", "stderr"]):
            with self.subTest(streams=streams):
                reader, target = os.pipe()
                worker = Process(self.folder / "chatty.log", sys.executable, "-m", "pushpull", "worker", program, done,
                                 env=environment(), **{stream: target for stream in streams})
                self.processes.append(worker)
                os.close(target)
                deadline = time.monotonic() + 30
                while not done.exists():
                    self.assertLess(time.monotonic(), deadline, worker.text())
                    time.sleep(0.05)
                done.unlink()
                worker.kill(signal.SIGTERM)
                self.assertEqual(worker.wait(30), 143, worker.text())
                message = "pushpull: output of the clones cannot be written: nobody reads it; training goes on without it\n"
                self.assertEqual(worker.text().count(message), 1 if streams == ["stdout"] else 0, worker.text())
                worker.log_path.unlink()
                os.close(reader)

    def test_last_lines_that_nobody_reads_do_not_keep_the_worker(self):
        program = self.folder / "flood.py"
        program.write_text("import sys\nsys.stderr.write('x' * 200000 + '\\n')\n")
        reader, target = os.pipe()
        self.addCleanup(os.close, reader)
        worker = Process(self.folder / "w.log", sys.executable, "-m", "pushpull", "worker",
                         f"--pipeline_config_path={self.write_config()}", f"--train_dir={self.folder / 'run'}", program,
                         env=environment(), stderr=target)
        self.processes.append(worker)
        os.close(target)
        self.assertEqual(worker.wait(60), 0)

    def test_its_server_is_started_again_when_it_is_killed_and_ends_the_job_when_it_fails(self):
        config = self.write_config(steps=400)
        worker = self.start_python("one.log", "-m", "pushpull", "worker", f"--pipeline_config_path={config}",
                                   f"--train_dir={self.folder / 'one'}", "--num_clones=2", PROGRAMS / "perceptron.py",
                                   "--pause=0.1", f"--pause_until={self.folder / 'killed'}")
        self.await_clones(worker, 2)
        time.sleep(1.3)  # a server that is killed at once is not started again
        folder, = re.findall(r"(?m)^pushpull: ps_server at unix:(/.+)/ps$", worker.text())
        pid = self.server_of(worker)
        os.kill(pid, signal.SIGSTOP)
        with open(f"{folder}/ps_server.log", "a", encoding="utf-8") as log:
            log.write("terminate called\nI20261201 12:00:00.000001 7 a.cc:1] half a li")
        os.kill(pid, signal.SIGKILL)
        worker.wait_for("] half a li\n")
        self.assertRegex(worker.text(), r"(?m)^pushpull: ps_server was killed; starting it again\n(\[ps_server\] .*\n)*"
                         r"\[ps_server\] terminate called\n\[ps_server\] I20261201 .* half a li\n")
        self.assertIn("] half a li\n", pathlib.Path(f"{folder}/ps_server.log").read_text())
        (self.folder / "killed").touch()
        self.assertEqual(worker.wait(120), 0, worker.text())
        self.assertEqual(pushpull.steps(self.folder / "one")[-1], 400)

        config = self.write_config(steps=ENDLESS)
        worker = self.start_python("two.log", "-m", "pushpull", "worker", f"--pipeline_config_path={config}",
                                   f"--train_dir={self.folder / 'two'}", "--num_clones=1", PROGRAMS / "perceptron.py")
        self.await_clones(worker, 1)
        time.sleep(1.3)
        (self.folder / "two" / "run_id").write_text("this is no id")
        os.kill(self.server_of(worker), signal.SIGKILL)
        self.assertNotEqual(worker.wait(60), 0, worker.text())
        self.assertIn("run_id", worker.text())

    def test_warnings_and_the_address_of_its_server_are_shown(self):
        config = self.write_config(steps=ENDLESS, sync="false", train="min_contributors: 2 step_deadline_secs: 9")
        worker = self.start_python("w.log", "-m", "pushpull", "worker", f"--pipeline_config_path={config}",
                                   f"--train_dir={self.folder / 'run'}", PROGRAMS / "perceptron.py")
        worker.wait_for(" loss ")
        address, = re.findall(r"(?m)^pushpull: ps_server at (unix:/.+/ps)$", worker.text())
        psctl = self.start("psctl.log", "psctl", "drain", f"--ps={address}")
        self.assertEqual(psctl.wait(), 0, psctl.text())
        self.assertEqual(worker.wait(60), 143, worker.text())
        self.assertRegex(worker.text(), r"(?m)^\[ps_server\] W\d+ .*\] .*min_contributors has no effect in asynchronous")
        self.assertNotRegex(worker.text(), r"(?m)^\[ps_server\] I")

    def server_of(self, worker):
        """Returns the process id of the ps_server that `pushpull worker` has started."""
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (b"ps_server" in (folder / "cmdline").read_bytes() and
                        f"\nPPid:\t{worker.popen.pid}\n" in (folder / "status").read_text()):
                    return int(folder.name)
            except FileNotFoundError:
                pass  # it has just ended
        return self.fail("the worker has no server")

    def test_error_that_a_restart_cannot_fix(self):
        for how, code, message in (("raise", 1, "RuntimeError: this program fails on purpose"),
                                   ("66", 66, "exit code 66, after which a clone is not started again")):
            with self.subTest(how=how):
                _, worker = self.start_job(f"--fail={how}")
                self.assertEqual(worker.wait(), code, worker.text())
                self.assertIn(message, worker.text())
                self.assertNotIn("starting it again", worker.text())
                for process in self.processes:
                    process.end()

    def test_program_that_ends_its_own_training_is_not_started_again(self):
        self.start_server(self.write_config(steps=ENDLESS, batch=8))
        for name, end, code, message in (("stops", "ps.stop()", 1, "pushpull.errors.StoppedError: "),
                                         ("registers", "ps.start(variables, values, num_samples=40)", 65,
                                          "pushpull.errors.Error: this connection has registered already")):
            with self.subTest(name=name):
                program = self.folder / f"{name}.py"
                program.write_text(ENDS_ITSELF.format(end=end))
                worker = self.start_python(f"{name}.log", "-m", "pushpull", "worker", f"--ps={self.address('run')}",
                                           program)
                self.assertEqual(worker.wait(60), code, worker.text())
                self.assertIn(message, worker.text())
                self.assertNotIn("starting it again", worker.text())

    def test_exit_codes_if_sigchld_was_ignored(self):
        self.start_server(self.write_config(steps=ENDLESS))
        bad = self.write_config("bad.config", steps=ENDLESS, optimizer=MOMENTUM.replace("0.9", "-1"))
        for code, flags in ((66, [f"--ps={self.address('run')}"]),
                            (65, [f"--pipeline_config_path={bad}", f"--train_dir={self.folder / 'bad'}"])):
            worker = Process(self.folder / f"{code}.log", "/bin/sh", "-c", "trap '' CHLD; exec \"$@\"", "sh",
                             sys.executable, "-m", "pushpull", "worker", "--num_clones=1", *flags,
                             PROGRAMS / "perceptron.py", "--fail=66", env=environment())
            self.processes.append(worker)
            self.assertEqual(worker.wait(), code, worker.text())

    def test_codes_of_the_package(self):
        worker = self.start_python("w.log", "-m", "pushpull", "worker", f"--ps=unix:{self.folder / 'nobody'}",
                                   PROGRAMS / "lost_peer.py")
        self.assertEqual(worker.wait(), 200, worker.text())
        self.assertIn("PeerLostError", worker.text())
        # A restart of the whole worker may help.
        self.assertIn("clone 0 ended with exit code 200, after which a clone is not started again; stopping all\n",
                      worker.text())

    def test_clones_start_anew_when_the_server_comes_back_with_other_settings(self):
        server, worker = self.start_job()
        worker.wait_for(" loss ")
        server.kill(signal.SIGTERM)
        self.assertEqual(server.wait(), 143, server.text())
        server = self.start_server(self.write_config(steps=ENDLESS), "run", "--sync=false", log="again.log")
        for clone in (0, 1):
            worker.wait_for(f"clone {clone} ended because the server has other settings (exit code 202); starting it")
            self.assertIn(f"[clone {clone}] pushpull.errors.JobChangedError: ", worker.text())
        server.wait_for("clone 1 (")
        worker.kill(signal.SIGTERM)
        self.assertEqual(worker.wait(), 143, worker.text())

    def test_clone_that_keeps_dying_is_started_after_growing_pauses(self):
        for how, what in (("segfault", "killed by signal 11"), ("201", "exit code 201")):
            with self.subTest(how=how):
                _, worker = self.start_job(f"--fail={how}", clones=1)
                worker.wait_for(f"clone 0 died ({what}); starting it again in 0.8 s")
                self.assertIn("starting it again in 0.2 s", worker.text())
                for process in self.processes:
                    process.end()

    def test_clone_without_a_trainer_reports_its_steps(self):
        self.start_server(self.write_config(steps=40, batch=8))
        worker = self.start_clones("raw_loop.py", 20, clones=1)
        worker.wait_for("/40 ")  # the line of a step
        clones = self.await_clones(worker, 1)
        time.sleep(_supervisor.SETTLED_S)  # since its first report
        kill(clones[0])
        # It has trained for so long that no pause is needed.
        worker.wait_for("clone 0 died (killed by signal 9); starting it again at once\n")
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertRegex(worker.text(), r"(?m)^step \d+/40 ")
        self.assertRegex(worker.text(), r"(?m)^step 40/40 ")  # the end is reported

    def test_program_that_a_clone_starts_does_not_report_to_a_file_of_its_own(self):
        server = self.start_server(self.write_config(steps=10, batch=8))
        worker = self.start_clones("launcher.py", self.folder, clones=1)
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertEqual(server.wait(), 0, server.text())
        self.assertIn("[clone 0] the pipe is a file: True\n", worker.text())
        for number in range(20):
            self.assertEqual((self.folder / f"{number}.data").read_bytes(), b"")

    def test_usage(self):
        for arguments, message in ((["worker"], "there is no program to run"),
                                   (["worker", "missing.py"], "there is no file missing.py"),
                                   (["worker", "--num_clones=0", __file__], "must be at least 1"),
                                   (["worker", "--worker_index=2", "--num_workers=2", __file__], "--worker_index=2"),
                                   (["worker", "--ps=a:1", "--pipeline_config_path=c", "--train_dir=d", __file__],
                                    "--ps=a:1 names a server and --pipeline_config_path starts one"),
                                   (["worker", "--gradient_precision=int4", __file__],
                                    "--gradient_precision=int4, expected one of fp32, bf16, int8\n"),
                                   (["worker", "--weight_precision=int8", __file__],
                                    "--weight_precision=int8, expected one of fp32, bf16\n"),
                                   (["worker", "--nope"], "unrecognized|required|no program"),
                                   (["dance"], "invalid choice")):
            with self.subTest(arguments=arguments):
                process = self.start_python("usage.log", "-m", "pushpull", *arguments)
                self.assertEqual(process.wait(), 64, process.text())
                self.assertRegex(process.text(), message)

    def test_arguments_of_a_program(self):
        shown = self.folder / "shown.py"
        shown.write_text("import sys\nprint('arguments', sys.argv[1:])\n")
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(self.folder), str(PROGRAMS.parents[2] / "python")])
        for command, seen in ((["-m", "shown", "--a=1", "b"], ["--a=1", "b"]),
                              (["-m", "shown", "--", "--a=1"], ["--", "--a=1"]),
                              (["-mshown", "b", "--a=1"], ["b", "--a=1"]),
                              (["-mshown", "--a=1", "b"], ["--a=1", "b"]),
                              (["-mshown", "--num_clones=4", "-h"], ["--num_clones=4", "-h"]),
                              (["--num_clones", "2", "--insecure", "-mshown", "--", "-mz"], ["--", "-mz"]),
                              ([shown, "-mb", "--a=1"], ["-mb", "--a=1"]),
                              (["--", shown, "--a=1"], ["--a=1"]),
                              ([shown, "--", "--a=1"], ["--", "--a=1"])):
            with self.subTest(command=command):
                worker = self.start_python("w.log", "-m", "pushpull", "worker", *command, PYTHONPATH=path)
                self.assertEqual(worker.wait(), 0, worker.text())
                self.assertIn(f"[clone 0] arguments {seen}\n", worker.text())
                self.assertEqual(worker.text().count("arguments"), 2 if "--num_clones" in command else 1)
                worker.log_path.unlink()

    def test_program_that_is_a_symbolic_link_imports_its_neighbours(self):
        there = self.folder / "there"
        there.mkdir()
        (there / "neighbour.py").write_text("NAME = 'found'\n")
        (there / "program.py").write_text("import neighbour\nprint('neighbour', neighbour.NAME)\n")
        link = self.folder / "link.py"
        link.symlink_to(there / "program.py")
        worker = self.start_python("w.log", "-m", "pushpull", "worker", link)
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertIn("[clone 0] neighbour found\n", worker.text())

    def test_sigterm_and_sigint_end_all(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number):
                _, worker = self.start_job()
                clones = self.await_clones(worker, 2)
                worker.wait_for("clone 1 of 2 trains")
                worker.kill(number)
                self.assertEqual(worker.wait(60), 143, worker.text())
                self.await_end_of(clones.values())
                self.assertNotIn("Traceback", worker.text())
                self.assertNotIn("did not end in time", worker.text())
                for process in self.processes:
                    process.end()

    def test_ctrl_c_does_not_end_a_background_job(self):
        config = self.write_config(steps=ENDLESS, batch=8)
        train_dir = self.folder / "own"
        for name, flags in (("other", [f"--ps={self.address('run')}"]),
                            ("own", [f"--pipeline_config_path={config}", f"--train_dir={train_dir}"])):
            with self.subTest(server=name):
                if name == "other":
                    self.start_server(config)
                worker = Process(self.folder / f"{name}.log", "/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh",
                                 sys.executable, "-m", "pushpull", "worker", *flags, PROGRAMS / "raw_loop.py",
                                 env=environment())
                self.processes.append(worker)
                worker.wait_for(" loss ")
                worker.kill(signal.SIGINT)
                time.sleep(1.5)
                self.assertIsNone(worker.popen.poll(), worker.text())
                worker.kill(signal.SIGTERM)
                self.assertEqual(worker.wait(60), 143, worker.text())

    def test_a_clone_that_is_stopped_alone_is_started_again(self):
        _, worker = self.start_job()
        clones = self.await_clones(worker, 2)
        worker.wait_for("clone 1 of 2 trains")
        os.kill(clones[1], signal.SIGTERM)
        worker.wait_for("pushpull: clone 1 was stopped (exit code 143); starting it again ")
        deadline = time.monotonic() + 60
        while worker.text().count("[clone 1] clone 1 of 2 trains") < 2:
            self.assertLess(time.monotonic(), deadline, worker.text())
            time.sleep(0.05)
        self.assertEqual(self.await_clones(worker, 2)[0], clones[0])
        worker.kill(signal.SIGTERM)
        self.assertEqual(worker.wait(60), 143, worker.text())
        self.assertEqual(worker.text().count("starting it again"), 1, worker.text())

    def test_closed_terminal_ends_nothing(self):
        config = self.write_config(steps=60, batch=8)
        worker = self.start_python("hup.log", "-m", "pushpull", "worker", f"--pipeline_config_path={config}",
                                   f"--train_dir={self.folder / 'run'}", PROGRAMS / "raw_loop.py")
        worker.wait_for("/60 ")
        worker.kill(signal.SIGHUP)
        self.assertEqual(worker.wait(60), 0, worker.text())
        self.assertEqual(pushpull.steps(self.folder / "run")[-1], 60)

    def test_a_signal_while_the_server_starts_leaves_nothing(self):
        temporary = self.folder / "temporary"
        temporary.mkdir()
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "ps_server").write_text("#!/bin/sh\nexec sleep 100\n")  # it never listens
        (programs / "ps_server").chmod(0o700)
        for number in (signal.SIGTERM, signal.SIGINT):
            worker = self.start_python(f"{number}.log", "-m", "pushpull", "worker",
                                       f"--pipeline_config_path={__file__}", f"--train_dir={self.folder / 'run'}",
                                       __file__, PUSHPULL_BIN_DIR=str(programs), TMPDIR=str(temporary))
            deadline = time.monotonic() + 60
            while not list(temporary.glob("*/ps_server.log")):
                self.assertLess(time.monotonic(), deadline, worker.text())
                time.sleep(0.02)
            worker.kill(number)
            self.assertEqual(worker.wait(60), 143, worker.text())
            self.assertNotIn("Traceback", worker.text())
            self.assertEqual(list(temporary.iterdir()), [])

    def test_no_clone_outlives_its_supervisor(self):
        _, worker = self.start_job()
        clones = self.await_clones(worker, 2)
        # Before its program runs, a clone has not yet asked the kernel to end it with its supervisor.
        worker.wait_for("clone 1 of 2 trains")
        os.kill(clones[1], signal.SIGSTOP)
        worker.kill()
        worker.wait()
        self.await_end_of(clones.values())

    def test_server_ends_with_the_process_that_started_it(self):
        process = self.start_python("local.log", PROGRAMS / "local_server.py", TMPDIR=str(self.folder))
        process.wait_for("server pid ")
        pid = int(process.text().split("server pid ")[1].split()[0])
        self.assertTrue(is_alive(pid))
        process.kill()
        process.wait()
        self.await_end_of([pid])

    def test_local_server_that_is_not_closed_leaves_nothing(self):
        temporary = self.folder / "temporary"
        temporary.mkdir()
        for how in ("to-the-end", "not-to-the-end", "interrupted-close"):
            with self.subTest(how=how):
                process = self.start_python(f"{how}.log", PROGRAMS / "unclosed_server.py", how, TMPDIR=str(temporary))
                self.assertEqual(process.wait(), 0, process.text())
                self.assertRegex(process.text(), r"server pid \d+ with pushpull-\w+\n$")
                self.assertFalse(is_alive(int(process.text().split("server pid ")[1].split()[0])))
                self.assertEqual(list(temporary.iterdir()), [])


if __name__ == "__main__":
    main()
