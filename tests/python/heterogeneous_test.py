"""C++ clones and Python clones train the same network in one job."""
import re
import shutil

from support import EXAMPLES, PythonJobTest, TESTS, load_example, main, skip_without_torch, write_idx

skip_without_torch()

import numpy  # noqa: E402  pylint: disable=wrong-import-position
import torch  # noqa: E402  pylint: disable=wrong-import-position

import pushpull  # noqa: E402  pylint: disable=wrong-import-position
import pushpull.torch  # noqa: E402  pylint: disable=wrong-import-position

PROGRAM = EXAMPLES / "heterogeneous_mnist.py"
CONFIG = TESTS.parent / "deploy" / "pipelines" / "mobilenet_v2_mnist.config"


def relative_error(found, expected):
    return float(numpy.linalg.norm(found - expected) / numpy.linalg.norm(expected))


class HeterogeneousJob(PythonJobTest):

    def setUp(self):
        super().setUp()
        rng = numpy.random.default_rng(5)
        labels = numpy.arange(300) % 10
        # Squares of 7 pixels: images that differ little are ill-conditioned for batch norm.
        images = numpy.kron(rng.integers(0, 200, (300, 4, 4)), numpy.ones((7, 7), int))
        for image, label in zip(images, labels):  # a bright stripe whose place is the class
            image[2 * label + 4:2 * label + 7] = 250
        write_idx(self.folder / "train-images-idx3-ubyte.gz", images)
        write_idx(self.folder / "train-labels-idx1-ubyte.gz", labels)

    def config(self, steps, batch, optimizer):
        """Writes the network's config with another optimizer and length."""
        text = re.sub(r"optimizer \{.*?\n  \}\n", f"optimizer {{ {optimizer} use_moving_average: false }}\n",
                      CONFIG.read_text(), flags=re.DOTALL)
        text = text.replace("batch_size: 96", f"batch_size: {batch} seed: 3").replace("num_steps: 1719",
                                                                                      f"num_steps: {steps}")
        path = self.folder / "mixed.config"
        path.write_text(text.replace("t10k-", "train-"))
        return path

    def train_mixed(self, config, run, in_python):
        """Trains with one clone for each element of in_python, which says whether it is a Python program."""
        server = self.start_server(config, run)
        workers = []
        for i, is_python in enumerate(in_python):
            flags = (f"--ps={self.address(run)}", "--num_clones=1", f"--num_workers={len(in_python)}",
                     f"--worker_index={i}")
            workers.append(
                self.start_python(f"{run}.{i}.log", "-m", "pushpull", "worker", *flags, PROGRAM,
                                  f"--data_dir={self.folder}") if is_python else
                self.start(f"{run}.{i}.log", "worker", *flags, f"--data_dir={self.folder}", "--threads=1"))
        for worker in workers:
            self.assertEqual(worker.wait(), 0, worker.text() + server.text())
        self.assertEqual(server.wait(), 0, server.text())
        return self.weights(run)

    def momentum(self, steps, rate, momentum=0.9, batch=48):
        return self.config(steps, batch, f"momentum_optimizer {{ momentum_optimizer_value: {momentum} learning_rate {{ "
                           f"constant_learning_rate {{ learning_rate: {rate} }} }} }}")

    def test_gradients_agree(self):
        # Not at the first step: where the input of an activation is nearly the same for all images, batch norm makes it
        # zero but for rounding errors, which then decide whether a gradient passes. This may still befall an activation
        # of one batch, which changes the gradients of all layers before it a little. It is rarer in small batches, and
        # each gradient has to agree in one of several.
        start = self.train_mixed(self.momentum(10, 0.05, momentum=0), "start", [False])
        self.assertEqual(len(start), 262)
        least = {}
        for batch in (16, 12, 20, 24, 28, 48):
            errors = self.compare_gradients(start, batch)
            worst = max(errors, key=errors.get)
            print(f"batch of {batch}, {len(errors)} gradients and statistics: largest relative error "
                  f"{errors[worst]:.2g}, of {worst}")
            self.assertGreater(len(errors), 220)
            self.assertLess(errors[worst], 0.05, worst)
            least = {name: min(error, least.get(name, error)) for name, error in {**least, **errors}.items()}
            if max(least.values()) < 1e-3:
                return
        self.fail(f"the gradients of {[name for name, error in least.items() if error >= 1e-3]} agree in no batch")

    def compare_gradients(self, start, batch):
        """Computes the step after `start` in both languages. Returns the relative error by variable."""
        # With a rate of 1, the difference of the weights is the gradient, or a share of the statistics.
        config = self.momentum(11, 1, momentum=0, batch=batch)
        found = []
        for language in ("cpp", "python"):
            run = f"{language}{batch}"
            shutil.copytree(self.folder / "start", self.folder / run)
            found.append(self.train_mixed(config, run, [language == "python"]))
        errors = {}
        for name, values in start.items():
            cpp, python = found[0][name] - values, found[1][name] - values
            # Batch norm leaves the gradient of some offsets, and the mean of what they shift, as rounding errors.
            if numpy.abs(cpp).max() > 1e-5 * max(1.0, numpy.abs(values).max()):
                errors[name] = relative_error(python, cpp)
        return errors

    def test_one_cpp_clone_and_two_python_clones_train_as_three_cpp_clones_do(self):
        # The rate is small, because at a larger one float32's rounding errors double with each of the first steps.
        start = self.train_mixed(self.momentum(10, 0.01), "start", [False] * 3)
        config = self.momentum(30, 1e-5)
        runs = []
        for run, in_python in (("cpp", [False] * 3), ("mixed", [False, True, True])):
            shutil.copytree(self.folder / "start", self.folder / run)
            runs.append(self.train_mixed(config, run, in_python))
        cpp, mixed = runs
        difference = {name: numpy.linalg.norm(mixed[name] - values) for name, values in cpp.items()}
        change = {name: numpy.linalg.norm(values - start[name]) for name, values in cpp.items()}
        share = float(numpy.linalg.norm(list(difference.values())) / numpy.linalg.norm(list(change.values())))
        errors = {name: float(difference[name] / numpy.linalg.norm(values)) for name, values in cpp.items()
                  if numpy.abs(values).max() > 1e-5}  # otherwise as in test_gradients_agree
        worst = max(errors, key=errors.get)
        print(f"20 steps: the weights differ by {share:.2g} of their change; largest relative difference of one of "
              f"{len(errors)} variables {errors[worst]:.2g}, of {worst}")
        self.assertLess(share, 0.02)
        self.assertLess(errors[worst], 1e-3, worst)
        self.assertGreater(len(errors), 220)
        example = load_example("heterogeneous_mnist")
        model = example.MobileNetV2()
        self.assertEqual(pushpull.torch.load_state_dict(model, self.folder / "mixed", variables=model.variables), 30)
        found = model.state_dict()["first.1.weight"].numpy()
        numpy.testing.assert_array_equal(found.transpose(2, 3, 1, 0), mixed["MobilenetV2/Conv/weights"])

    def test_first_variable_that_differs_is_named(self):
        example = load_example("heterogeneous_mnist")
        config = self.config(1000, 48, "momentum_optimizer { learning_rate { constant_learning_rate { } } }")
        server = self.start_server(config, "run")
        digits = example.Digits(self.folder, "train")

        def refusal(change):
            model = example.MobileNetV2()
            change(model)
            with pushpull.connect(self.address()) as ps:
                with self.assertRaises(pushpull.FailedPreconditionError) as caught:
                    pushpull.torch.Trainer(ps, model, variables=model.variables).batches(digits)
            return str(caught.exception)

        def widen(model):
            model.last[1] = torch.nn.Conv2d(320, 1281, 1, bias=False)

        def rename(model):
            model.variables[5] = pushpull.torch.ServerVariable(model.variables[5].tensor, "Other/weights",
                                                               pushpull.torch.DEPTHWISE)

        def turn(model):  # as PyTorch has it
            model.variables[0] = pushpull.torch.ServerVariable("first.1.weight", "MobilenetV2/Conv/weights")

        self.assertRegex(refusal(widen), r"MobilenetV2/Conv_1/weights.*\[1, 1, 320, 128[01]\].*\[1, 1, 320, 128[01]\]")
        self.assertRegex(refusal(rename), "Other/weights|expanded_conv/depthwise/depthwise_weights")
        self.assertRegex(refusal(turn), r"MobilenetV2/Conv/weights.*(\[32, 1, 3, 3\].*\[3, 3, 1, 32\]|"
                         r"\[3, 3, 1, 32\].*\[32, 1, 3, 3\])")

        def drop_biases(model):
            model.variables.pop()
            model.logits = torch.nn.Conv2d(1280, 10, 1, bias=False)

        self.assertRegex(refusal(drop_biases), "MobilenetV2/Logits/Conv2d_1c_1x1/biases")
        server.end()

    def test_frozen_parameter_must_be_frozen_in_the_config(self):
        example = load_example("heterogeneous_mnist")
        config = self.config(1000, 48, "momentum_optimizer { learning_rate { constant_learning_rate { } } }")
        frozen = self.folder / "frozen.config"
        frozen.write_text(config.read_text().replace("train_config {", "train_config {\n"
                                                     '  freeze_variables: "MobilenetV2/Conv/weights"'))
        digits = example.Digits(self.folder, "train")

        def register(run):
            model = example.MobileNetV2()
            model.first[1].weight.requires_grad_(False)
            with pushpull.connect(self.address(run)) as ps:
                next(pushpull.torch.Trainer(ps, model, variables=model.variables).batches(digits))

        self.start_server(config, "trained")
        with self.assertRaisesRegex(pushpull.FailedPreconditionError, "has frozen MobilenetV2/Conv/weights, which this "
                                    "server trains: name it in train_config.freeze_variables"):
            register("trained")
        self.start_server(frozen, "frozen")
        register("frozen")

    def test_variables_that_do_not_fit_the_model(self):
        model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4))
        place = pushpull.torch.ServerVariable
        named = [place("0.weight", "w", pushpull.torch.CONVOLUTION), place("0.bias", "b"), place("1.weight", "g"),
                 place("1.bias", "o")]
        with pushpull.LocalServer(self.write_config("other.config", steps=1)) as server:
            for variables, message in (
                    (named[:3], "no variable of the server holds the parameter 1.bias"),
                    (named + [place("2.weight", "x")], "x is said to hold the tensor '2.weight'"),
                    (named + [place("0.bias", "twice")], "or which another variable holds"),
                    ([place("0.weight", "w", (0, 1, 2, 2))] + named[1:],
                     r"w has the axes \[0, 1, 2, 2\] of 0.weight, which has the shape \[4, 1, 3, 3\]")):
                with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                    pushpull.torch.Trainer(server.connect(0), model, variables=variables)
            with self.assertRaisesRegex(ValueError, "options and variables are both given"):
                pushpull.torch.Trainer(server.connect(0), model, variables=named, options=lambda name, parameter: {})


if __name__ == "__main__":
    main()
