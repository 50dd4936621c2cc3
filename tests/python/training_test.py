"""Python clones train on plain arrays: the result does not depend on their number, on kills or on the ps tasks."""
import os
import re

import numpy

from support import FULL, PythonJobTest, config_text, main

import pushpull
from programs import perceptron

KILLS = int(os.environ.get("PUSHPULL_TEST_KILLS", "50" if FULL else "6"))


class Training(PythonJobTest):

    def test_number_of_clones_does_not_change_the_weights(self):
        one = self.check_that_the_number_of_clones_does_not_matter("perceptron.py")
        self.assertEqual(list(one), ["hidden/weights", "hidden/bias", "output/weights", "mean"])

    def test_one_clone_computes_what_the_formula_says(self):
        self.train_in_python(self.write_config(steps=5), "perceptron.py", clones=1)
        x, y = perceptron.make_data(400)
        expected = perceptron.make_variables(16, "float64")
        velocity = {name: 0.0 for name in expected}
        job = pushpull.checkpoint.open_checkpoint(self.folder / "run").manifest
        self.assertEqual(job["devices"], [f"the CPU, NumPy {numpy.__version__}"])
        for step in range(5):
            indices = self.indices(job["seed"], step)
            gradients, _ = perceptron.gradients_at(expected, x[indices], y[indices])
            mean = gradients.pop("mean")
            expected["mean"] = expected["mean"] + 0.1 * (mean - expected["mean"])
            gradients["hidden/weights"] += 1e-3 * expected["hidden/weights"]
            for name, gradient in gradients.items():
                velocity[name] = 0.9 * velocity[name] + gradient
                expected[name] = expected[name] - 0.05 * velocity[name]
        for name, values in self.weights().items():
            numpy.testing.assert_allclose(values, expected[name], atol=1e-6, err_msg=name)

    def indices(self, seed, step):
        """Returns the examples of a step, from the client library alone."""
        import ctypes  # pylint: disable=import-outside-toplevel
        from pushpull import _library  # pylint: disable=import-outside-toplevel
        sampling = _library.Sampling(sync=1, shuffle=1, seed=seed, num_examples=400, batch_size=31, num_replicas=1)
        indices = (ctypes.c_int64 * 31)()
        self.assertEqual(
            _library.library().pushpull_sample_batch(ctypes.byref(sampling), step, 0, indices, 31), 31)
        return list(indices)

    def test_same_seed_gives_the_same_bits_with_one_task_and_with_three(self):
        config = self.write_config(average="use_moving_average: true moving_average_decay: 0.9")
        self.train_in_python(config, "perceptron.py", run="a")
        self.train_in_python(config, "perceptron.py", run="b")
        self.train_in_python(config, "perceptron.py", run="c", server_flags=["--tasks=3"])
        for ema in (False, True):
            first = self.weights("a", ema=ema)
            for run in ("b", "c"):
                for name, values in self.weights(run, ema=ema).items():
                    self.assertEqual(values.tobytes(), first[name].tobytes(), f"{run}: {name}")
        raw, average = self.weights("a"), self.weights("a", ema=True)
        self.assertFalse((raw["hidden/bias"] == average["hidden/bias"]).any())
        self.assertTrue((raw["mean"] == average["mean"]).all(), "moving statistics have no average")

    def test_int8_gradients_and_bfloat16_weights(self):
        config = self.write_config()
        flags = ["--gradient_precision=int8", "--weight_precision=bf16"]
        for run, worker_flags in ("plain", []), ("a", flags), ("b", flags):
            self.train_in_python(config, "perceptron.py", run=run, clones=2, worker_flags=worker_flags)
        plain, encoded, again = self.weights("plain"), self.weights("a"), self.weights("b")
        for name, values in plain.items():
            self.assertEqual(encoded[name].tobytes(), again[name].tobytes(), name)
            self.assertTrue((encoded[name] != values).any(), name)
            numpy.testing.assert_allclose(encoded[name], values, atol=0.02, err_msg=name)

    def test_bfloat16_weights_leave_a_statistic_without_a_decay_exact(self):
        """The server sends the chunk of such a statistic in float32, as the clone asks, and the others in bfloat16."""
        value = numpy.float32(1.2345)
        counts = [16777215.0 - step for step in range(10)]  # they need all bits of float32
        for shared_memory in (True, False):
            seen = []
            with self.subTest(shared_memory=shared_memory), pushpull.LocalServer(
                    config_text(batch=8, steps=10), self.folder / str(shared_memory)) as server:
                ps = server.connect(gradient_precision="int8", weight_precision="bf16", shared_memory=shared_memory)
                arrays = {"w": numpy.full(5000, value), "count": numpy.full(3, value)}
                with pushpull.numpy.Trainer(ps, arrays, {"count": {"moving_statistic": True}},
                                            show_progress=False) as trainer:
                    for batch in trainer.batches(40):
                        seen.append((float(arrays["w"][0]), float(arrays["count"][0])))
                        count = numpy.full(3, counts[batch.position])
                        trainer.push({"count": count}, samples=len(batch), loss=1.0)
                self.assertEqual(server.wait(60), 0)
                self.assertEqual(seen, [(1.234375, count) for count in [float(value)] + counts[:-1]])

    def test_asynchronous(self):
        _, worker = self.train_in_python(self.write_config(sync="false", steps=200), "perceptron.py")
        self.assertRegex(worker.text(), r"step 200/200 100.0% loss 0\.\d+ ")
        self.assertEqual(pushpull.steps(self.folder / "run")[-1], 200)

    def test_stop_and_resume(self):
        half, whole = self.write_config("half.config", steps=15), self.write_config(steps=30)
        self.train_in_python(whole, "perceptron.py", run="straight")
        self.train_in_python(half, "perceptron.py", run="resumed")
        self.train_in_python(whole, "perceptron.py", run="resumed")
        self.assertEqual(self.checkpoint(30, "straight"), self.checkpoint(30, "resumed"))

    def test_killed_clones_and_servers_do_not_change_the_bits(self):
        server, worker = self.check_that_kills_do_not_matter(KILLS, 60 * KILLS, "perceptron.py", pause=0.04,
                                                             longest_wait=1.0)
        self.assertEqual(worker.text().count("died (killed by signal 9)"), (KILLS + 1) // 2, worker.text())
        versions = [int(version) for version in re.findall(r"serving version (\d+)", server.text())]
        self.assertEqual(len(versions), KILLS // 2 + 1)
        self.assertEqual(versions, sorted(versions), "applied steps were lost")


if __name__ == "__main__":
    main()
