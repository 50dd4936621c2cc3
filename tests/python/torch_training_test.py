"""PyTorch clones train: the result does not depend on their number, on kills or on the processes that load data."""
import os

from support import FULL, PythonJobTest, config_text, main, skip_without_torch

skip_without_torch()

import numpy  # noqa: E402  pylint: disable=wrong-import-position
import torch  # noqa: E402  pylint: disable=wrong-import-position

from programs import network  # noqa: E402  pylint: disable=wrong-import-position
import pushpull  # noqa: E402  pylint: disable=wrong-import-position
import pushpull.torch  # noqa: E402  pylint: disable=wrong-import-position
from pushpull._torch_data import EXAMPLE, seed_generators  # noqa: E402  pylint: disable=wrong-import-position

KILLS = int(os.environ.get("PUSHPULL_TEST_KILLS", "50" if FULL else "4"))


class TorchTraining(PythonJobTest):

    def test_number_of_clones_does_not_change_the_weights(self):
        one = self.check_that_the_number_of_clones_does_not_matter("network.py")
        initial = network.make_network().state_dict()
        self.assertEqual(list(one), list(initial))
        for name, values in one.items():
            self.assertGreater(numpy.abs(values - initial[name].numpy()).max(), 1e-3, f"{name} was not trained")

    def test_one_clone_computes_what_pytorch_computes(self):
        config = self.write_config(steps=5)
        self.train_in_python(config, "network.py", "--double", clones=1)
        model = network.make_network().double()
        groups = [{"params": [parameter], "weight_decay": 1e-4 if parameter.dim() > 1 else 0.0}
                  for parameter in model.parameters()]
        optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
        images = network.Images()
        for share in self.shares(5):
            x, y = torch.utils.data.default_collate([self.example(images, share, i) for i in share.indices])
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x.double()), y).backward()
            optimizer.step()
        for name, values in self.weights().items():
            numpy.testing.assert_allclose(values, model.state_dict()[name].numpy(), atol=1e-6, err_msg=name)
        devices = pushpull.checkpoint.open_checkpoint(self.folder / "run").manifest["devices"]
        capability = torch.backends.cpu.get_cpu_capability()
        self.assertEqual(devices, [f"the CPU ({capability}) in fp64, PyTorch {torch.__version__}"])

    def example(self, images, share, index):
        """Returns an example as a clone loads it, with the same random numbers."""
        seed_generators(EXAMPLE, share.seed, share.position, 0, index)
        return images[index]

    def shares(self, steps):
        """Yields the batches of a job with one clone, as another job's connection draws them."""
        with pushpull.LocalServer(self.write_config("other.config", steps=1)) as server:
            ps = server.connect()
            for position in range(steps):
                indices = ps.sample(300, position, 0)
                yield type("Share", (), {"seed": ps.job.seed, "position": position, "indices": indices})

    def weights_in_two_parts(self, case):
        """Trains one step with a backward pass for each half of the batch. Returns the weights.

        case: "retry": the first attempt fails between the two; "leftover": the model already has a gradient.
        """
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 1)
        x = torch.arange(64.0).reshape(32, 2) / 64
        data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
        if case == "leftover":
            (100 * model(x).sum()).backward()
        attempts = 0

        def attempt(trainer):
            nonlocal attempts
            for batch in trainer.batches(data):
                attempts += 1
                half = len(batch) // 2
                (((model(batch.x[:half]) - batch.y[:half])**2).sum() / len(batch)).backward()
                if case == "retry" and attempts == 1:
                    raise OSError("on purpose")
                trainer.step(((model(batch.x[half:]) - batch.y[half:])**2).sum() / len(batch), samples=len(batch))

        with pushpull.LocalServer(config_text(batch=8, steps=1)) as server:
            with pushpull.torch.Trainer(server, model, show_progress=False) as trainer:
                if case == "retry":
                    with self.assertRaisesRegex(OSError, "on purpose"):
                        attempt(trainer)
                attempt(trainer)
        self.assertEqual(attempts, 2 if case == "retry" else 1)
        return model.weight.detach()

    def test_gradients_of_an_abandoned_attempt_or_another_optimizer_do_not_count(self):
        expected = self.weights_in_two_parts("plain")
        for case in ("retry", "leftover"):
            with self.subTest(case=case):
                self.assertTrue(torch.equal(self.weights_in_two_parts(case), expected))

    def test_same_seed_gives_the_same_bits(self):
        # Batch norm, dropout and augmentation depend on the batch only, and not on the process that computes it.
        config = self.write_config()
        for run, workers in (("a", 0), ("b", 0), ("c", 2)):
            self.train_in_python(config, "network.py", "--norm", "--dropout", f"--workers={workers}", run=run)
        for run in ("b", "c"):
            self.assertEqual(self.checkpoint(20, "a"), self.checkpoint(20, run), run)

    def test_running_statistics_are_those_of_pytorch(self):
        # With one clone the server's formula is the module's own.
        self.train_in_python(self.write_config(steps=4, optimizer="""momentum_optimizer {
            learning_rate { constant_learning_rate { learning_rate: 0 } } }"""), "network.py", "--norm", clones=1)
        model = network.make_network(norm=True)
        for share in self.shares(4):
            model(torch.stack([self.example(network.Images(), share, i)[0] for i in share.indices]))
        trained = self.weights()
        self.assertEqual(float(trained["1.num_batches_tracked"]), 4.0)
        for name in ("1.running_mean", "1.running_var"):
            numpy.testing.assert_allclose(trained[name], model.state_dict()[name].numpy(), rtol=1e-5, atol=1e-6)

    def accuracy(self, model):
        """Returns the share of the images whose class the model finds."""
        images = network.Images()
        model.eval()
        with torch.no_grad():
            found = model(torch.stack([images[i][0] for i in range(300)])).argmax(1)
        return (found == torch.arange(300) % 4).float().mean().item()

    def test_model_has_the_last_weights_in_the_end(self):
        file = self.folder / "weights.pt"
        _, worker = self.train_in_python(self.write_config(steps=150), "network.py", "--norm", f"--weights={file}")
        state = torch.load(file)
        for name, values in self.weights().items():
            self.assertEqual(state[name].float().numpy().tobytes(), values.tobytes(), name)
        model = network.make_network(norm=True)
        self.assertEqual(pushpull.torch.load_state_dict(model, self.folder / "run"), 150)
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(tensor, state[name]), name)
        self.assertGreater(self.accuracy(model), 0.95, worker.text())

    def test_killed_clones_and_servers_do_not_change_the_bits(self):
        self.check_that_kills_do_not_matter(KILLS, 100 * KILLS, "network.py", "--norm", "--dropout", pause=0.05,
                                            longest_wait=2.0)


if __name__ == "__main__":
    main()
