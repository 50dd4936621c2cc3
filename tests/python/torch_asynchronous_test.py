"""PyTorch clones train asynchronously: one as PyTorch alone does, several with stale weights, and through kills."""
import random
import re
import time

from support import (MOMENTUM, PythonJobTest, ServerKeptAlive, clone_processes, config_text, kill, main,
                     skip_without_torch)

skip_without_torch()

import numpy  # noqa: E402  pylint: disable=wrong-import-position
import torch  # noqa: E402  pylint: disable=wrong-import-position

from programs import network  # noqa: E402  pylint: disable=wrong-import-position
import pushpull  # noqa: E402  pylint: disable=wrong-import-position
import pushpull.torch  # noqa: E402  pylint: disable=wrong-import-position
from pushpull._torch_data import EXAMPLE, seed_generators  # noqa: E402  pylint: disable=wrong-import-position

# With PyTorch alone and every gradient two steps old, 23 of 30 runs of this network diverge at a rate of 0.05, and none
# of 30 at 0.02. Three clones make gradients that are two steps old on average.
STABLE_MOMENTUM = MOMENTUM.replace("0.05", "0.01")


class TorchAsynchronous(PythonJobTest):

    def check_that_the_network_has_learnt(self, steps, text):
        """Checks the newest checkpoint of network.py --norm: its step, and what the network finds in the images."""
        model = network.make_network(norm=True)
        self.assertEqual(pushpull.torch.load_state_dict(model, self.folder / "run"), steps, text)
        images = network.Images()
        model.eval()
        with torch.no_grad():
            found = model(torch.stack([images[i][0] for i in range(300)])).argmax(1)
        self.assertGreater((found == torch.arange(300) % 4).float().mean().item(), 0.9, text)

    def test_one_clone_computes_what_pytorch_computes(self):
        # With one clone each gradient is of the newest weights. The augmentation is that of its replica.
        steps = 6
        self.train_in_python(self.write_config(sync="false", steps=steps), "network.py", "--norm", "--double",
                             clones=1)
        model = network.make_network(norm=True).double()
        groups = [{"params": [parameter], "weight_decay": 1e-4 if parameter.dim() > 1 else 0.0}
                  for parameter in model.parameters()]
        optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
        images = network.Images()
        with pushpull.LocalServer(self.write_config("other.config", sync="false", steps=1)) as server:
            ps = server.connect()
            for position in range(steps):
                examples = []
                for index in ps.sample(300, position, 0):
                    seed_generators(EXAMPLE, ps.job.seed, position, 1, index)
                    examples.append(images[index])
                x, y = torch.utils.data.default_collate(examples)
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x.double()), y).backward()
                optimizer.step()
        for name, values in self.weights().items():
            numpy.testing.assert_allclose(values, model.state_dict()[name].numpy(), atol=1e-6, err_msg=name)

    def test_three_clones_learn(self):
        config = self.write_config(sync="false", steps=200, optimizer=STABLE_MOMENTUM)
        _, worker = self.train_in_python(config, "network.py", "--norm", "--workers=1")
        self.assertRegex(worker.text(), r"step 200/200 100.0% loss 0\.\d+ ")
        self.check_that_the_network_has_learnt(200, worker.text())

    def test_batch_of_weights_that_are_too_old_is_computed_again(self):
        images = network.Images()
        for bound, is_refused in (("", False), ("max_staleness: 2", True)):
            with self.subTest(bound=bound):
                with pushpull.LocalServer(config_text(sync="false", steps=8, train=bound), num_clones=2) as server:
                    slow, fast = [pushpull.torch.Trainer(server, network.make_network(norm=True), show_progress=False)
                                  for _ in range(2)]
                    first = next(slow.batches(images))
                    # The other clone makes three steps meanwhile. Versions count them.
                    fast_batches = fast.batches(images)
                    for _ in range(3):
                        self.step(fast, next(fast_batches))
                    self.assertEqual(next(fast_batches).position, 3)
                    slow_batches = slow.batches(images)  # yields the open batch once more
                    self.step(slow, next(slow_batches))
                    second = next(slow_batches)
                    self.assertEqual(second.position, 0 if is_refused else 1)
                    self.assertEqual(second.indices == first.indices, is_refused)
                    same_images = second.x.shape == first.x.shape and torch.equal(second.x, first.x)
                    self.assertEqual(same_images, is_refused)  # with the same augmentation
                    slow.close()
                    fast.close()

    def step(self, trainer, batch):
        """Computes a batch with a trainer's model and pushes it."""
        model = trainer._model  # pylint: disable=protected-access
        trainer.step(torch.nn.functional.cross_entropy(model(batch.x), batch.y), samples=len(batch))

    def test_clones_and_servers_that_are_killed(self):
        # The steps go on without the clone that is gone, so each kill follows the last one soon.
        steps = 400
        config = self.write_config(sync="false", steps=steps, optimizer=STABLE_MOMENTUM)
        server = ServerKeptAlive(lambda log: self.start_server(config, log=log))
        worker = self.start_clones("network.py", "--norm", "--workers=1", "--pause=0.1")
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        for clone in range(3):  # all must be here before the first kill
            server.servers[-1].wait_for(f"clone {clone} (")
        for victim in ("clone", "server", "clone", "server"):
            self.assertIsNone(worker.popen.poll(), f"training ended before the kills (seed {seed})\n{worker.text()}")
            clones = clone_processes(worker.popen.pid)
            if victim == "server":
                server.kill()
                server.servers[-1].wait_for("serving version")
            else:
                self.assertTrue(kill(rng.choice(list(clones.values()))), f"seed {seed}")
            time.sleep(rng.uniform(0.2, 1.0))
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertEqual(server.servers[-1].wait(), 0, server.text())
        self.assertEqual(worker.text().count("died (killed by signal 9)"), 2, worker.text())
        versions = [int(version) for version in re.findall(r"serving version (\d+)", server.text())]
        self.assertEqual(len(versions), 3, server.text())
        self.assertEqual(versions, sorted(versions), "applied steps were lost")
        self.check_that_the_network_has_learnt(steps, worker.text())


if __name__ == "__main__":
    main()
