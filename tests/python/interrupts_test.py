"""Ctrl-C at any place of a training loop loses no batch, counts none twice, and leaves the clone usable or says why."""
import _thread
import contextlib
import io
import signal
import sys
import time
from unittest import mock

import numpy

from support import PROGRAMS, PythonJobTest, config_text, main

import pushpull
from pushpull._progress import ProgressLine
from pushpull._reports import Progress


class Interrupts(PythonJobTest):

    def trainer(self, **options):
        server = pushpull.LocalServer(config_text(batch=8, steps=5))
        self.addCleanup(server.close)
        trainer = pushpull.numpy.Trainer(server, {"a": numpy.ones(3, numpy.float32)}, show_progress=False, **options)
        self.addCleanup(trainer.close)
        return trainer

    def train(self, trainer):
        """Trains to the end. Returns the positions of the batches."""
        positions = []
        for batch in trainer.batches(40):
            positions.append(batch.position)
            trainer.push({}, samples=len(batch), loss=1.0)
        return positions

    @contextlib.contextmanager
    def interrupted(self, trainer, name, before=False):
        """A function of the library raises KeyboardInterrupt, as the interpreter does when the function returns.

        before: before the function is called instead.
        """
        library = trainer.ps._library
        function = getattr(library, name)

        def interrupt(*arguments):
            code = 0 if before else function(*arguments)
            if code == 0:
                raise KeyboardInterrupt
            return code

        with mock.patch.object(trainer.ps, "_library", mock.Mock(wraps=library, **{name: interrupt})):
            with self.assertRaises(KeyboardInterrupt):
                yield

    def test_interrupted_wait_loses_no_batch(self):
        trainer = self.trainer()
        with self.interrupted(trainer, "pushpull_clone_next"):
            next(trainer.batches(40))
        self.assertEqual(self.train(trainer), [0, 1, 2, 3, 4])

    def test_batch_that_was_taken_and_not_seen_is_yielded(self):
        trainer = self.trainer()
        trainer.ps.start([pushpull.Variable("a", (3,))], [numpy.ones(3)], 40)
        first = trainer.ps.next_batch()
        # As if the interrupt had come between the return and the assignment of the caller.
        self.assertEqual(trainer.ps.next_batch(or_open=True).position, first.position)
        with self.assertRaisesRegex(pushpull.FailedPreconditionError, "neither been finished nor given up"):
            trainer.ps.next_batch()
        trainer.ps.finish(8, 1.0)
        self.assertEqual(trainer.ps.next_batch(or_open=True).position, 1)

    def test_interrupted_push_counts_once(self):
        for before, expected in ((False, [1, 2, 3, 4]), (True, [0, 1, 2, 3, 4])):
            with self.subTest(before=before):
                trainer = self.trainer()
                with self.interrupted(trainer, "pushpull_clone_finish", before):
                    self.train(trainer)
                with self.assertRaisesRegex(pushpull.Error, "there is no batch to finish"):
                    trainer.push({}, samples=8, loss=1.0)  # the gradient may be on its way
                self.assertEqual(self.train(trainer), expected)

    def test_push_whose_arguments_were_refused_can_be_repeated(self):
        trainer = self.trainer()
        batches = trainer.batches(40)
        batch = next(batches)
        for metrics, error in (({"": 1.0}, pushpull.InvalidArgumentError), ({"a": "b"}, TypeError),
                               ({1: 1.0}, AttributeError)):
            with self.subTest(metrics=metrics):
                with self.assertRaises(error):
                    trainer.push({}, samples=len(batch), loss=1.0, metrics=metrics)
        trainer.push({}, samples=len(batch), loss=1.0)
        self.assertEqual(next(batches).position, 1)

    def test_interrupted_registration_says_what_to_do(self):
        for late in (False, True):
            with self.subTest(late=late):
                trainer = self.trainer()
                library = trainer.ps._library

                def start(*arguments):
                    _thread.interrupt_main()  # which waits for this thread
                    time.sleep(0.3)
                    return library.pushpull_clone_start(*arguments)

                with self.assertRaises(KeyboardInterrupt):
                    if late:  # as if it had come when the registration was over
                        with mock.patch.object(trainer.ps, "_end_others", side_effect=KeyboardInterrupt):
                            trainer.batches(40)
                    with mock.patch.object(trainer.ps, "_library", mock.Mock(wraps=library, pushpull_clone_start=start)):
                        trainer.batches(40)
                message = "has registered already.*; connect again" if late else "was stopped.*; connect again"
                with self.assertRaisesRegex(pushpull.Error, message) as raised:
                    trainer.batches(40)
                self.assertEqual(isinstance(raised.exception, pushpull.StoppedError), not late)

    def test_program_that_is_interrupted_in_the_barrier_ends_and_leaves_its_place(self):
        # The program handles SIGTERM as docs/USAGE.md says.
        for number, code, words in ((signal.SIGINT, -signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, 143, "")):
            with self.subTest(signal=number.name):
                run = number.name
                server = self.start_server(self.write_config(batch=8, steps=5), run, "--lease=3000s")

                def start(log, clone):
                    return self.start_python(f"{run}.{log}", PROGRAMS / "numpy_loop.py", self.address(run), clone, 2)

                alone = start("alone.log", 0)
                alone.wait_for("pushed batch 0")
                time.sleep(1.0)  # it waits for clone 1
                alone.kill(number)
                self.assertEqual(alone.wait(), code, alone.text())
                self.assertIn(words, alone.text())
                self.assertEqual(alone.text().count("pushed"), 1, alone.text())
                # The clone has said that it leaves, so its place is free long before its lease ends.
                for clone in (start("0.log", 0), start("1.log", 1)):
                    self.assertEqual(clone.wait(), 0, clone.text())
                self.assertEqual(server.wait(), 0, server.text())

    def test_program_whose_step_failed_leaves_its_place(self):
        server = self.start_server(self.write_config(batch=8, steps=5), "failing", "--lease=3000s")
        failing = self.start_python("failing.log", PROGRAMS / "failing_step.py", self.address("failing"))
        self.assertEqual(failing.wait(), 1, failing.text())
        self.assertIn("in the backward pass", failing.text())
        again = self.start_python("again.log", PROGRAMS / "numpy_loop.py", self.address("failing"), 0, 1)
        self.assertEqual(again.wait(), 0, again.text())
        self.assertEqual(server.wait(), 0, server.text())

    def test_progress_on_a_closed_file_does_not_end_training(self):
        out = io.TextIOWrapper(io.BytesIO())
        line = ProgressLine(out)
        out.close()
        line.update([Progress(1, 5, 1.0, 0.1, 1.0, 8, 0, "")])
        line.finish()
        with mock.patch.object(sys, "stderr", io.TextIOWrapper(io.BytesIO())):
            server = pushpull.LocalServer(config_text(batch=8, steps=3))
            self.addCleanup(server.close)
            with pushpull.numpy.Trainer(server, {"a": numpy.ones(3, numpy.float32)}) as trainer:
                batches = trainer.batches(40)
                next(batches)
                sys.stderr.close()
                trainer.push({}, samples=8, loss=1.0)
                self.assertEqual([batch.position for batch in batches if trainer.push({}, samples=8, loss=1.0) is None],
                                 [1, 2])


if __name__ == "__main__":
    main()
