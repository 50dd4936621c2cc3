"""What goes wrong in a job of Python clones ends with an error that says what and where."""
import contextlib
import io
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import threading
import time
from unittest import mock

import numpy

from support import FULL, MOMENTUM, PATIENCE_S, TESTS, PythonJobTest, config_text, main

import pushpull

ABSENCE_S = 60 if FULL else 4  # how long a server is away that comes back


def make_variables():
    return {"a": numpy.ones((2, 3), numpy.float32), "b": numpy.zeros(3, numpy.float32)}


def zeros_like(variables):
    return {name: numpy.zeros_like(array) for name, array in variables.items()}


class FailsAfterTheFirstLook:
    """Stands in for a process that runs when somebody first looks, and has failed by the next look."""

    def __init__(self):
        self._looks = 0

    def poll(self):
        self._looks += 1
        return None if self._looks == 1 else 65

    def wait(self, timeout):
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("ps_server", timeout)
        return code


class BadCases(PythonJobTest):

    def serve(self, num_clones=1, **changes):
        server = pushpull.LocalServer(config_text(**{"batch": 8, "steps": 5, **changes}), self.folder / "run",
                                      num_clones, flags=[f"--state_dir={self.folder / 'state'}", "--lease=3s"])
        self.addCleanup(server.close)
        return server

    def trainer(self, ps, variables=None, **options):
        trainer = pushpull.numpy.Trainer(ps, variables or make_variables(), show_progress=False, **options)
        self.addCleanup(trainer.close)
        return trainer

    def train(self, trainer, num_samples=40):
        """Trains to the end with gradients of zero. Returns the number of batches."""
        count = 0
        for batch in trainer.batches(num_samples):
            trainer.push({}, samples=len(batch), loss=1.0)
            count += 1
        return count

    def test_other_variables(self):
        server = self.serve(steps=1000)
        trainer = self.trainer(server.connect())
        next(trainer.batches(40))
        for other, message in (({"a": numpy.ones((2, 4))}, r"\ba\b.*\[2, 4\].*\[2, 3\]|\ba\b.*\[2, 3\].*\[2, 4\]"),
                               ({"a": numpy.ones((2, 3)), "c": numpy.zeros(3)}, r"\bc\b"),
                               ({"a": numpy.ones((2, 3))}, r"\bb\b|1 variable")):
            with self.subTest(other=list(other)):
                with self.assertRaisesRegex(pushpull.FailedPreconditionError, message):
                    self.trainer(server.connect(), other).batches(40)

    def test_another_model_or_no_external_model(self):
        server = self.serve(name="pets")
        self.assertEqual(server.connect(model_name="pets").job.external_name, "pets")
        with self.assertRaisesRegex(pushpull.FailedPreconditionError, "'pets', expected the external model 'mnist'"):
            server.connect(model_name="mnist")

    def test_values_that_cannot_be_stored(self):
        ps = self.serve().connect()
        with self.assertRaisesRegex(TypeError, "the variable w is of complex128"):
            pushpull.numpy.Trainer(ps, {"w": numpy.ones(2, complex)})
        with self.assertRaisesRegex(TypeError, "the variable w is of list"):
            pushpull.numpy.Trainer(ps, {"w": [1.0]})
        table = numpy.ones((4, 6))
        with self.assertRaisesRegex(TypeError, "the variables v and w share memory"):
            pushpull.numpy.Trainer(ps, {"u": numpy.ones(2), "v": table, "w": table.T})
        with self.assertRaisesRegex(TypeError, "the variables v and w share memory"):
            pushpull.numpy.Trainer(ps, {"v": table[::-1, 4], "u": numpy.ones(2), "w": table[1, 2:]})
        pushpull.numpy.Trainer(ps, {"v": table[:, :3], "w": table[:, 3:], "none": table[:0], "back": table[::-1, :0]})
        many = {str(i): row for i, row in enumerate(numpy.ones((1000, 3)))}
        with mock.patch.object(numpy, "shares_memory", wraps=numpy.shares_memory) as compare:
            pushpull.numpy.Trainer(ps, many)
        self.assertEqual(compare.call_count, 0)  # it used to compare all pairs of them
        with self.assertRaisesRegex(ValueError, "'v', which is not a variable"):
            pushpull.numpy.Trainer(ps, {"w": numpy.ones(2)}, {"v": {"frozen": True}})

    def test_types_are_kept_and_frozen_variables_stay(self):
        variables = {"half": numpy.full(3, 1.5, numpy.float16), "count": numpy.full((), 3, numpy.int64),
                     "still": numpy.full(2, 7.0)}
        options = {"still": {"frozen": True}, "count": {"moving_statistic": True}}
        trainer = self.trainer(self.serve(steps=2), variables, options=options)
        for batch in trainer.batches(40):
            trainer.push({"half": numpy.ones(3), "count": variables["count"] + 1}, samples=len(batch), loss=0.0)
        self.assertEqual([array.dtype for array in variables.values()], ["float16", "int64", "float64"])
        self.assertEqual(int(variables["count"]), 5)
        self.assertEqual(list(variables["still"]), [7.0, 7.0])
        # Two steps of momentum at a rate of 0.05: 1.5 - 0.05 * (1 + 1.9).
        numpy.testing.assert_allclose(variables["half"], 1.355, atol=1e-3)

    def test_integers_that_float32_does_not_hold_are_refused(self):
        server = self.serve()
        for value, kept in (((1 << 24) + 1, 1 << 24), (999999937, 999999936), (-(1 << 62) - 1, -(1 << 62)),
                            ((1 << 63) - 1, 1 << 63)):
            with self.subTest(value):
                trainer = self.trainer(server, {"n": numpy.array([[3, value]])})
                with self.assertRaisesRegex(ValueError, rf"^n\[0, 1\] is {value}, and .* keep it as {kept}, because"):
                    next(trainer.batches(40))

    def test_rules_about_the_order_of_calls(self):
        trainer = self.trainer(self.serve())
        with self.assertRaisesRegex(pushpull.Error, "there is no batch to finish"):
            trainer.push({}, samples=1, loss=0.0)
        batches = trainer.batches(40)
        first = next(batches)
        for gradients, message in (({"c": numpy.ones(1)}, "'c', which is not a variable"),
                                   ({"a": numpy.ones(3)}, r"the gradient of a has the shape \[3\], expected \[2, 3\]")):
            with self.assertRaisesRegex(ValueError, message):
                trainer.push(gradients, samples=1, loss=0.0)
        with self.assertRaisesRegex(ValueError, "samples=0"):
            trainer.push({}, samples=0, loss=0.0)
        with self.assertRaisesRegex(pushpull.Error, "the batch at position 0 was not finished"):
            next(batches)
        with self.assertRaisesRegex(ValueError, "trains on 40 samples; it cannot go on with 41"):
            trainer.batches(41)
        # The batch is still there for another loop.
        again = trainer.batches(40)
        self.assertEqual(list(next(again).indices), list(first.indices))
        trainer.push({}, samples=len(first), loss=0.0)
        self.assertEqual(next(again).position, 1)

    def test_numbers_of_samples_that_cannot_be_used(self):
        batches = (trainer := self.trainer(self.serve())).batches(40)
        batch = next(batches)
        for push in (lambda samples: trainer.push({}, samples=samples, loss=0.0),
                     lambda samples: trainer.ps.finish(samples, 0.0)):
            for samples, error in ((0, ValueError), (-1, ValueError), (2**32 + 1, ValueError), (2**64 + 4, ValueError),
                                   (8.0, TypeError), ("8", TypeError), (None, TypeError)):
                with self.subTest(samples=samples):
                    with self.assertRaisesRegex(error, re.escape(f"samples={samples!r}")):
                        push(samples)
        trainer.push({}, samples=numpy.int32(len(batch)), loss=0.0)  # the batch can still be finished
        self.assertEqual(next(batches).position, 1)
        self.assertEqual(trainer.ps.progress().samples, len(batch))

    def test_loop_that_raises_gives_the_batch_up(self):
        server = self.serve(num_clones=1, steps=5)
        with self.assertRaisesRegex(ZeroDivisionError, "on purpose"):
            with self.trainer(server.connect(0)) as trainer:
                for _ in trainer.batches(40):
                    raise ZeroDivisionError("on purpose")
        with self.assertRaisesRegex(pushpull.Error, "gave up a batch: ZeroDivisionError: on purpose"):
            trainer.push({}, samples=1, loss=0.0)
        # Another process of the clone, here another connection, goes on.
        self.assertEqual(self.train(self.trainer(server.connect(0))), 5)

    def test_new_connection_of_a_clone_takes_the_place_of_the_old_one(self):
        server = self.serve(steps=100000)
        variables = make_variables()
        before = {name: values.copy() for name, values in variables.items()}
        first, second = self.trainer(server.connect(0)), self.trainer(server.connect(0), variables)
        unfinished = first.batches(40)
        next(unfinished)

        def train_to(position):
            for batch in second.batches(40):
                second.push({}, samples=len(batch), loss=1.0)
                if batch.position >= position:
                    return

        train_to(2)
        ones = {name: numpy.ones_like(values) for name, values in variables.items()}
        ended = "this connection has ended: the program has connected clone 0 to the server again"
        with self.assertRaisesRegex(pushpull.Error, ended):
            first.push(ones, samples=1, loss=1.0)
        for call in (lambda: next(unfinished), lambda: first.batches(40), first.ps.progress):
            with self.assertRaisesRegex(pushpull.Error, ended):
                call()
        with self.assertRaisesRegex(pushpull.Error, ended):
            with first:
                first.push(ones, samples=1, loss=1.0)
        self.assertTrue(first.ps.closed)
        train_to(5)
        for name, values in variables.items():
            numpy.testing.assert_array_equal(values, before[name], name)

    def test_new_connection_of_a_clone_ends_the_wait_of_the_old_one(self):
        server = self.serve(num_clones=2)
        first = self.trainer(server.connect(0))
        batches = first.batches(40)
        next(batches)
        first.push({}, samples=4, loss=1.0)
        waiting = self.in_thread(lambda: next(batches))  # for clone 1, which is never started
        self.trainer(server.connect(0)).batches(40)
        with self.assertRaisesRegex(pushpull.Error, "connected clone 0 to the server again"):
            waiting()

    def test_not_a_number_stops_the_job_or_is_skipped(self):
        for policy in ("STOP", "SKIP"):
            with self.subTest(policy=policy):
                config = config_text(batch=8, steps=5, train=f"non_finite_policy: {policy}")
                with pushpull.LocalServer(config) as server:
                    variables = make_variables()
                    trainer = pushpull.numpy.Trainer(server, variables, show_progress=False)

                    def train():
                        for batch in trainer.batches(40):  # pylint: disable=cell-var-from-loop
                            gradients = zeros_like(variables)  # pylint: disable=cell-var-from-loop
                            gradients["b"][1] = numpy.nan if batch.position == 2 else 1.0
                            trainer.push(gradients, samples=len(batch), loss=1.0)  # pylint: disable=cell-var-from-loop

                    if policy == "STOP":
                        with self.assertRaisesRegex(pushpull.Error, r"\bb\[1\]"):
                            train()
                    else:
                        train()
                        self.assertTrue(numpy.isfinite(variables["b"]).all())
                        self.assertLess(variables["b"][1], 0.0)

    def test_unknown_precision(self):
        for name, value, known in (("gradient_precision", "int4", "fp32, bf16, int8"),
                                   ("weight_precision", "int8", "fp32, bf16")):
            with self.assertRaisesRegex(ValueError, f"{name}={value}, expected one of {known}$"):
                pushpull.connect(**{name: value})

    def test_addresses_that_are_no_text(self):
        for address, message in ((2222, 'address=2222: expected a text such as "host:2222"'),
                                 (b"a:1", "address=b'a:1'"), (["a:1", 2], r"address=\['a:1', 2\]")):
            with self.assertRaisesRegex(TypeError, message):
                pushpull.connect(address, peer_deadline_s=1)

    def test_an_address_that_is_a_url(self):
        with self.assertRaisesRegex(pushpull.InvalidArgumentError, "expected host:port .*; leave out http://"):
            pushpull.connect("http://127.0.0.1:2222", peer_deadline_s=1)

    def test_forked_process(self):
        trainer = self.trainer(self.serve())
        batch = next(trainer.batches(40))

        def use(results):
            for function in (lambda: trainer.push({}, samples=len(batch), loss=0.0),
                             lambda: trainer.ps.progress(), lambda: trainer.batches(40)):
                try:
                    function()
                except pushpull.ForkedProcessError as error:
                    results.put(str(error))
            trainer.close()  # does nothing to the parent's connection

        context = multiprocessing.get_context("fork")
        results = context.SimpleQueue()
        process = context.Process(target=use, args=(results,))
        process.start()
        process.join(60)
        self.assertEqual(process.exitcode, 0)
        for _ in range(3):
            self.assertRegex(results.get(), f"belongs to process {os.getpid()}, but process {process.pid}, which was "
                             "forked from it, uses it")
        trainer.push({}, samples=len(batch), loss=0.0)

    def test_forked_process_leaves_the_local_server_alone(self):
        with pushpull.LocalServer(config_text(batch=8, steps=5)) as server:
            process = multiprocessing.get_context("fork").Process(target=server.close)
            process.start()
            process.join(60)
            self.assertEqual(process.exitcode, 0)
            self.assertTrue(server.train_dir.exists())
            self.assertEqual(self.train(self.trainer(server)), 5)

    def test_two_trainers_in_one_process(self):
        server = self.serve(num_clones=2)
        trainers = [self.trainer(server), self.trainer(server)]
        self.assertEqual([trainer.ps.clone for trainer in trainers], [0, 1])
        results = [self.in_thread(self.train, trainer) for trainer in trainers]
        self.assertEqual([result() for result in results], [5, 5])

    def test_server_that_is_away_for_a_while(self):
        config = self.write_config(steps=100)
        servers = [self.start_server(config)]
        ps = pushpull.connect(self.address())  # gives a server up after five minutes by default
        trainer = self.trainer(ps)
        result = self.in_thread(self.slow_training, trainer)
        servers[0].wait_for("clone 0 (")
        servers[0].kill()
        time.sleep(ABSENCE_S)
        # Which of the two depends on what the clone was doing when the server went away.
        name = re.compile("^(the parameter server|ps task 0 at unix:.*)$")
        end = time.monotonic() + PATIENCE_S
        while not name.match(ps.progress().waiting_for) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertRegex(ps.progress().waiting_for, name)
        servers.append(self.start_server(config, log="again.log"))
        self.assertEqual(result(), 100)

    def test_server_that_is_away_does_not_change_the_bits_of_three_clones(self):
        config = self.write_config(steps=100)
        self.train_in_python(config, "perceptron.py", run="straight")
        server = self.start_server(config, "absent")
        worker = self.start_clones("perceptron.py", "--pause=0.05", run="absent")
        for clone in range(3):
            server.wait_for(f"clone {clone} (")
        time.sleep(1)
        server.kill()
        time.sleep(ABSENCE_S)
        self.assertIsNone(worker.popen.poll(), worker.text())
        server = self.start_server(config, "absent", log="again.log")
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertEqual(server.wait(), 0, server.text())
        version = int(server.text().split("serving version ")[1].split()[0])
        self.assertLess(version, 100, "the run was over when the server was killed")
        self.assertNotIn("died", worker.text(), "a clone was started again")
        self.assertEqual(self.checkpoint(100, "straight"), self.checkpoint(100, "absent"))

    def slow_training(self, trainer):
        count = 0
        for batch in trainer.batches(40):
            time.sleep(0.02)
            trainer.push({}, samples=len(batch), loss=1.0)
            count = batch.position + 1
        return count

    def test_server_that_does_not_come_back(self):
        with self.assertRaisesRegex(pushpull.PeerLostError, "nobody.sock"):
            pushpull.connect(f"unix:{self.folder / 'nobody.sock'}", peer_deadline_s=1)
        server = self.start_server(self.write_config(steps=100000))
        trainer = self.trainer(pushpull.connect(self.address(), peer_deadline_s=2))
        result = self.in_thread(self.slow_training, trainer)
        server.wait_for("clone 0 (")
        server.kill()
        with self.assertRaisesRegex(pushpull.PeerLostError, "run.sock"):
            result()

    def test_connection_that_waits_names_the_server(self):
        program = self.folder / "waits.py"
        program.write_text("import pushpull\npushpull.connect('127.0.0.1:1')\n")
        threaded = self.folder / "threaded.py"
        threaded.write_text("import threading, pushpull\n"
                            "threading.Thread(target=pushpull.connect, args=('127.0.0.1:1',)).start()\n")
        for name, command in (("alone", [program]), ("in a thread", [threaded]),
                              ("supervised", ["-m", "pushpull", "worker", "--num_clones=1", program])):
            with self.subTest(name=name):
                process = self.start_python(f"{name}.log", *command)
                process.wait_for("waiting for ps task 0 at 127.0.0.1:1")
                process.end()

    def test_server_that_takes_connections_and_never_answers_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            process = self.start_python("silent.log", "-c", f"import pushpull; pushpull.connect('{address}')")
            process.wait_for(f"waiting for ps task 0 at {address}")
            process.end()

    def test_start_that_waits_names_the_server(self):
        server = self.start_server(self.write_config(steps=5))
        trainer = self.trainer(pushpull.connect(self.address(), peer_deadline_s=8))
        server.kill()
        with contextlib.redirect_stderr(io.StringIO()) as told:
            with self.assertRaises(pushpull.PeerLostError):
                trainer.batches(40)
        self.assertRegex(told.getvalue(), r"^pushpull: waiting for (the parameter server|ps task 0 at unix:.*)\n$")

    def test_key_that_others_can_read_is_no_eviction(self):
        subprocess.run([TESTS.parent / "scripts" / "make_certs.sh", f"--out={self.folder / 'certs'}", "--job=test",
                        "--workers=1"], check=True, capture_output=True)
        certs = self.folder / "certs"
        key = certs / "worker-0.key"
        key.chmod(0o644)
        files = {"tls_ca": certs / "ca.pem", "tls_cert": certs / "worker-0.pem", "tls_key": key}
        with self.assertRaisesRegex(pushpull.Error, r"worker-0\.key.*mode 0644") as raised:
            pushpull.connect(f"unix:{self.folder / 'nobody.sock'}", peer_deadline_s=1, **files)
        self.assertNotIsInstance(raised.exception, pushpull.EvictedError)
        self.assertEqual(raised.exception.exit_code, 65)

    def test_local_server_that_is_killed_is_noticed_at_once(self):
        server = self.serve(steps=100000)
        result = self.in_thread(self.slow_training, self.trainer(server))
        deadline = time.monotonic() + PATIENCE_S
        while "clone 0 (" not in server.log():
            self.assertLess(time.monotonic(), deadline, "clone 0 has not registered:\n" + server.log())
            time.sleep(0.05)
        os.kill(server.pid, signal.SIGKILL)
        killed = time.monotonic()
        with self.assertRaisesRegex(pushpull.ServerFailedError, r"killed by signal 9:\n(.|\n)*listening on"):
            result()
        self.assertLess(time.monotonic() - killed, 60)

    def test_local_server_that_is_killed_before_a_clone_registers_is_noticed_at_once(self):
        server = self.serve(num_clones=2)
        trainer = self.trainer(server.connect())  # gives a server up after five minutes
        os.kill(server.pid, signal.SIGKILL)
        for name, wait in (("start", lambda: trainer.batches(40)), ("connect", server.connect)):
            with self.subTest(name=name):
                began = time.monotonic()
                with self.assertRaisesRegex(pushpull.ServerFailedError, "killed by signal 9"):
                    wait()
                self.assertLess(time.monotonic() - began, 20)

    def test_bad_config_is_in_the_message(self):
        bad = config_text(optimizer=MOMENTUM.replace("0.9", "-1"))
        with self.assertRaisesRegex(pushpull.ServerFailedError,
                                    r"exit code 65:\n(.|\n)*momentum_optimizer_value") as raised:
            pushpull.LocalServer(bad)
        self.assertEqual(raised.exception.exit_code, 65)

    def test_a_start_that_fails_late_is_noticed(self):
        server = self.folder / "ps_server"
        server.write_text("#!/bin/sh\necho 'I ps_server_main.cc:1] all 1 ps tasks (default), listening on x' >&2\n"
                          "sleep 0.3\necho 'ps_server: EPOCH is damaged' >&2\nexit 65\n")
        server.chmod(0o700)
        with mock.patch.dict(os.environ, PUSHPULL_BIN_DIR=str(self.folder)):
            with self.assertRaisesRegex(pushpull.ServerFailedError, r"exit code 65:\n(.|\n)*EPOCH is damaged"):
                pushpull.LocalServer(config_text())

    def test_process_that_ignores_the_ends_of_its_children(self):
        self.addCleanup(signal.signal, signal.SIGCHLD, signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        with self.assertRaisesRegex(ValueError, "ignores SIGCHLD"):
            pushpull.LocalServer(config_text())

    def test_server_that_fails_right_after_it_was_seen_to_run(self):
        def start(server):
            server._process = FailsAfterTheFirstLook()

        with mock.patch.object(pushpull.LocalServer, "_start", start):
            with self.assertRaisesRegex(pushpull.ServerFailedError, "exit code 65"):
                pushpull.LocalServer(config_text())

    def test_stop_from_another_thread(self):
        server = self.serve(num_clones=2)
        trainer = self.trainer(server.connect(0))
        next(trainer.batches(40))
        trainer.push({}, samples=4, loss=0.0)
        waiting = self.in_thread(lambda: next(trainer.batches(40)))  # for clone 1, which is never started
        time.sleep(0.5)
        trainer.ps.stop()
        with self.assertRaises(pushpull.StoppedError):
            waiting()

    def test_clone_is_not_freed_under_a_call_of_another_thread(self):
        server = self.serve(num_clones=2)
        for name, call in (("progress", lambda ps: ps.progress()), ("advance", lambda ps: ps.advance(0)),
                           ("stop", lambda ps: ps.stop())):
            with self.subTest(name=name):
                ps = server.connect()
                calls = []
                begun = threading.Event()

                def slow(*_):
                    begun.set()
                    time.sleep(0.3)
                    calls.append(name)  # pylint: disable=cell-var-from-loop

                def free(clone):
                    calls.append("free")  # pylint: disable=cell-var-from-loop
                    library.pushpull_clone_free(clone)  # pylint: disable=cell-var-from-loop

                library = ps._library
                replaced = {f"pushpull_clone_{name}": slow, "pushpull_clone_free": free}
                with mock.patch.object(ps, "_library", mock.Mock(wraps=library, **replaced)):
                    result = self.in_thread(call, ps)
                    self.assertTrue(begun.wait(PATIENCE_S))
                    ps.close()
                    result()
                self.assertEqual(calls[0], name)
                self.assertEqual(calls[-1], "free")

    def test_wrong_numbers(self):
        server = self.serve()
        with self.assertRaisesRegex(ValueError, "clone=1 is not one of num_clones=1 clones"):
            server.connect(1)
        trainer = self.trainer(server.connect())
        with self.assertRaisesRegex(pushpull.InvalidArgumentError, "no batch can be drawn for replica 0 of 1"):
            trainer.ps.sample(0, 0, 0)


if __name__ == "__main__":
    main()
