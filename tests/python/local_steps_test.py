"""Local steps in Python: clones take several mini-batches per step with an optimizer of their own."""
import os
import unittest

import numpy

from support import FULL, MOMENTUM, PythonJobTest, main

import pushpull
from programs import perceptron

try:
    import torch
    from programs import network
    from pushpull._torch_data import EXAMPLE, seed_generators
except ImportError:
    torch = None

KILLS = int(os.environ.get("PUSHPULL_TEST_KILLS", "20" if FULL else "2"))
LOCAL_STEPS, ROUNDS = 3, 4
NESTEROV = "outer_optimizer { learning_rate: 0.7 momentum: 0.5 use_nesterov: true }"
DELAYED = "outer_optimizer { learning_rate: 0.7 momentum: 0.5 use_nesterov: true momentum_every: 3 }"


class RoundsTest(PythonJobTest):
    """A test with steps that are rounds."""

    def write_rounds(self, name="pipeline.config", steps=ROUNDS, outer="", **changes):
        """Writes a config whose steps are rounds."""
        return self.write_config(name, steps=steps, train=f"local_steps: {LOCAL_STEPS} {outer}", **changes)

    def samples(self, num_examples, replicas, mini_batches):
        """Returns the examples of every batch as a list by position of lists by replica."""
        with pushpull.LocalServer(self.write_config("other.config", steps=1), num_clones=replicas) as server:
            ps = server.connect()
            return [[ps.sample(num_examples, position, replica) for replica in range(replicas)]
                    for position in range(mini_batches)]


class LocalSteps(RoundsTest):

    def test_two_clones_compute_what_the_formula_says(self):
        self.train_in_python(self.write_rounds(outer=NESTEROV), "perceptron.py", clones=2)
        x, y = perceptron.make_data(400)
        weights = perceptron.make_variables(16, "float64")
        outer = {name: 0.0 for name in weights}
        samples = self.samples(400, 2, ROUNDS * LOCAL_STEPS)
        for step in range(ROUNDS):
            mean = {name: 0.0 for name in weights}
            for replica in range(2):
                local, velocity = dict(weights), {name: 0.0 for name in weights}
                for position in range(step * LOCAL_STEPS, (step + 1) * LOCAL_STEPS):
                    indices = samples[position][replica]
                    gradients, _ = perceptron.gradients_at(local, x[indices], y[indices])
                    local["mean"] = local["mean"] + 0.1 * (gradients.pop("mean") - local["mean"])
                    gradients["hidden/weights"] += 1e-3 * local["hidden/weights"]
                    for name, gradient in gradients.items():
                        velocity[name] = 0.9 * velocity[name] + gradient
                        local[name] = local[name] - 0.05 * velocity[name]
                share = sum(len(samples[step * LOCAL_STEPS + h][replica]) for h in range(LOCAL_STEPS))
                for name, value in local.items():
                    mean[name] = mean[name] + share / (31 * LOCAL_STEPS) * value
            for name, value in mean.items():
                difference = weights[name] - value
                outer[name] = 0.5 * outer[name] + difference
                weights[name] = value if name == "mean" else weights[name] - 0.7 * (difference + 0.5 * outer[name])
        for name, values in self.weights().items():
            numpy.testing.assert_allclose(values, weights[name], atol=1e-6, err_msg=name)

    def test_killed_clones_and_servers_do_not_change_the_bits(self):
        _, worker = self.check_that_kills_do_not_matter(
            KILLS, 30 * KILLS, "perceptron.py", pause=0.02, longest_wait=1.0,
            train=f"local_steps: {LOCAL_STEPS} {DELAYED}", optimizer=MOMENTUM.replace("0.9", "0.8"))
        self.assertIn("died (killed by signal 9)", worker.text())

    def test_asynchronous_with_delayed_nesterov_momentum(self):
        config = self.write_rounds(steps=90, outer=DELAYED, sync="false")
        _, worker = self.train_in_python(config, "perceptron.py")
        self.assertRegex(worker.text(), r"step 90/90 100.0% loss 0\.\d+ lr 0\.05 ")
        self.assertEqual(pushpull.steps(self.folder / "run")[-1], 90)
        x, y = perceptron.make_data(400)
        _, before = perceptron.gradients_at(perceptron.make_variables(16, "float32"), x, y)
        _, after = perceptron.gradients_at(self.weights(), x, y)
        self.assertLess(after, 0.3 * before)

    def test_epochs_count_all_mini_batches(self):
        config = self.write_rounds(steps=0)
        config.write_text(config.read_text() + "train_input_reader { num_epochs: 1 }\n")
        self.train_in_python(config, "perceptron.py")  # 400 samples are 4.3 rounds of 3 batches of 31
        self.assertEqual(pushpull.steps(self.folder / "run")[-1], 5)

    def test_a_clone_of_another_program_sees_positions_of_mini_batches(self):
        with pushpull.LocalServer(self.write_rounds(steps=2)) as server:
            ps = server.connect()
            ps.start([pushpull.Variable("w", (4,))], [numpy.ones(4, numpy.float32)], 100)
            seen = []
            while (batch := ps.next_batch()) is not None:
                seen.append((batch.position, batch.version, batch.weights[:4].tolist()))
                batch.gradient[:4] = 1.0
                ps.finish(samples=10, loss=1.0)
            self.assertEqual([entry[:2] for entry in seen], [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1)])
            weights = [entry[2][0] for entry in seen]  # momentum 0.9 that begins afresh, and a learning rate of 0.05
            numpy.testing.assert_allclose(weights, [1, 0.95, 0.855, 0.7195, 0.6695, 0.5745], atol=1e-6)
            self.assertEqual(ps.last_version, 2)
            last = ps.last_weights
            self.assertEqual(ps.progress().samples, 60)
            ps.close()
            numpy.testing.assert_allclose(last[:4], 0.439, atol=1e-6)
            self.assertTrue(last.flags.owndata, "the memory of the clone ends with it")


@unittest.skipIf(torch is None, "this Python has no torch")
class TorchLocalSteps(RoundsTest):

    def test_one_clone_computes_what_pytorch_computes(self):
        self.train_in_python(self.write_rounds(), "network.py", "--double", "--norm", clones=1)
        model = network.make_network(norm=True).double()
        images = network.Images()
        seed = pushpull.checkpoint.open_checkpoint(self.folder / "run").manifest["seed"]
        for position, (indices,) in enumerate(self.samples(300, 1, ROUNDS * LOCAL_STEPS)):
            if position % LOCAL_STEPS == 0:
                groups = [{"params": [p], "weight_decay": 1e-4 if p.dim() > 1 else 0.0} for p in model.parameters()]
                optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
            examples = []
            for index in indices:
                seed_generators(EXAMPLE, seed, position, 0, index)
                examples.append(images[index])
            x, y = torch.utils.data.default_collate(examples)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x.double()), y).backward()
            optimizer.step()
        trained = self.weights()
        self.assertEqual(float(trained["1.num_batches_tracked"]), ROUNDS * LOCAL_STEPS)
        for name, values in trained.items():
            numpy.testing.assert_allclose(values, model.state_dict()[name].numpy(), atol=2e-6, rtol=1e-5, err_msg=name)


if __name__ == "__main__":
    main()
