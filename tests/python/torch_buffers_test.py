"""What becomes of a PyTorch model's buffers: exact in every encoding, and statistics that stay in range."""
from support import MOMENTUM, PythonJobTest, config_text, main, skip_without_torch

skip_without_torch()

import numpy  # noqa: E402  pylint: disable=wrong-import-position
import torch  # noqa: E402  pylint: disable=wrong-import-position

import pushpull  # noqa: E402  pylint: disable=wrong-import-position
import pushpull.torch  # noqa: E402  pylint: disable=wrong-import-position
from pushpull._torch_variables import count_passes, declare, store_statistics  # noqa: E402  pylint: disable=wrong-import-position

DATA = [(torch.full((3,), i / 10), float(i % 3)) for i in range(40)]
STILL = MOMENTUM.replace("0.05", "0")


def loss_of(model, batch):
    return ((model(batch.x).squeeze(1) - batch.y)**2).mean()


class Tables(torch.nn.Module):
    """Has buffers whose values no encoding holds, and parameters beside them."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 64)
        self.last = torch.nn.Linear(64, 1)
        self.norm = torch.nn.BatchNorm1d(1)
        self.register_buffer("index", torch.arange(600).view(1, -1))
        self.register_buffer("variance", torch.tensor([5.0] + [0.001 * (i + 1) for i in range(31)]))
        self.register_buffer("position", torch.sin(torch.arange(64.0)))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return self.norm(self.last(torch.tanh(self.first(x))))


class SharedNorm(torch.nn.Module):
    """Uses one batch norm for several maps, as the heads of detectors do."""

    def __init__(self, passes):
        super().__init__()
        torch.manual_seed(4)
        self.passes = passes
        self.layer = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.last = torch.nn.Linear(4, 1)

    def forward(self, x):
        return sum(self.last(self.norm(self.layer(x))) for _ in range(self.passes)) / self.passes


class Buffers(PythonJobTest):

    def train_tables(self, tasks=1, gradient="fp32", weight="fp32"):
        """Trains Tables. Returns the variables of the checkpoint and the initial state."""
        torch.manual_seed(0)
        model = Tables()
        initial = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        train_dir = self.folder / f"{gradient}.{weight}.{tasks}"
        with pushpull.LocalServer(config_text(batch=8, steps=260), train_dir, flags=[f"--tasks={tasks}"]) as server:
            ps = server.connect(gradient_precision=gradient, weight_precision=weight)
            with pushpull.torch.Trainer(ps, model, show_progress=False) as trainer:
                for batch in trainer.batches(DATA):
                    trainer.step(loss_of(model, batch), samples=len(batch))
            self.assertEqual(server.wait(60), 0)
            return pushpull.load(train_dir), initial

    def test_no_encoding_rounds_a_buffer(self):
        exact, _ = self.train_tables()
        for gradient, weight in (("bf16", "fp32"), ("int8", "fp32"), ("fp32", "bf16"), ("int8", "bf16")):
            with self.subTest(gradient=gradient, weight=weight):
                stored, initial = self.train_tables(gradient=gradient, weight=weight)
                for name in ("index", "variance", "position"):
                    numpy.testing.assert_array_equal(stored[name], initial[name].numpy(), name)
                self.assertEqual((stored["calls"], stored["norm.num_batches_tracked"]), (260, 260))
                self.assertFalse(numpy.array_equal(stored["first.weight"], exact["first.weight"]),
                                 "parameters beside the buffers must be rounded as ever")
        two, _ = self.train_tables(tasks=2, gradient="int8", weight="bf16")
        for name, value in stored.items():
            numpy.testing.assert_array_equal(value, two[name], name)

    def test_a_statistic_of_several_passes_contains_no_negative_part_of_the_old_one(self):
        for passes in (1, 2, 5):
            with self.subTest(passes=passes):
                model = SharedNorm(passes)
                entries = declare(model, None)
                old = [entry.tensor().detach().float().clone() for entry in entries]
                before = count_passes(entries)
                model(torch.stack([x for x, _ in DATA[:8]]))
                counts = [now - then for now, then in zip(count_passes(entries), before)]
                index = next(i for i, entry in enumerate(entries) if entry.name == "norm.running_var")
                self.assertEqual(counts[index], passes)
                into, exact = [[torch.zeros_like(value) for value in old] for _ in range(2)]
                store_statistics(entries, old, into, counts)
                store_statistics(entries, old, exact)
                # Every pass has the same batch, so each has the same statistic.
                expected = model.layer(torch.stack([x for x, _ in DATA[:8]])).var(0)
                torch.testing.assert_close(into[index], expected, atol=1e-4, rtol=1e-3)
                # In a synchronous job the server computes with the value that the clone had.
                torch.testing.assert_close(0.9 * old[index] + 0.1 * exact[index], model.norm.running_var)
                self.assertEqual(torch.equal(into[index], exact[index]), passes == 1)

    def test_stale_weights_and_several_passes_make_no_negative_variance(self):
        models = [SharedNorm(8) for _ in range(4)]
        lowest = 1.0
        with pushpull.LocalServer(config_text(sync="false", batch=16, steps=80, optimizer=STILL),
                                  num_clones=4) as server:
            trainers = [pushpull.torch.Trainer(server, model, show_progress=False) for model in models]
            iterators = [trainer.batches(DATA) for trainer in trainers]
            batches = [next(iterator) for iterator in iterators]
            try:
                while True:  # in turn, so that each contribution is three steps old
                    for k, model in enumerate(models):
                        lowest = min(lowest, float(model.norm.running_var.min()))
                        trainers[k].step(loss_of(model, batches[k]), samples=len(batches[k]))
                        batches[k] = next(iterators[k])
            except StopIteration:
                pass
            for trainer in trainers:
                trainer.close()
            server.wait(60)
            stored = pushpull.load(server.train_dir)["norm.running_var"]
        self.assertGreater(lowest, 0.0)
        expected = models[0].layer(torch.stack([x for x, _ in DATA])).var(0).detach().numpy()
        numpy.testing.assert_allclose(stored, expected, rtol=0.5, atol=1e-3)

    def test_buffers_that_are_not_finite_or_have_no_shape(self):
        for value, persistent, message in ((float("inf"), True, "buffer mask has values that are not finite.*=False"),
                                           (float("nan"), True, "buffer mask has values that are not finite"),
                                           (float("inf"), False, "")):
            with self.subTest(value=value, persistent=persistent):
                model = torch.nn.Linear(3, 1)
                model.register_buffer("mask", torch.tensor([0.0, value]), persistent=persistent)
                with pushpull.LocalServer(config_text(batch=8, steps=1)) as server:
                    with pushpull.torch.Trainer(server, model, show_progress=False) as trainer:
                        if message:
                            with self.assertRaisesRegex(ValueError, message):
                                trainer.batches(DATA)
                        else:
                            for batch in trainer.batches(DATA):
                                trainer.step(loss_of(model, batch), samples=len(batch))
        with self.assertRaisesRegex(TypeError, "running_mean has no shape yet"):
            declare(torch.nn.LazyBatchNorm1d(affine=False), None)

    def test_integers_that_float32_does_not_hold(self):
        def start(dtype, values, persistent=True):
            model = torch.nn.Linear(3, 1)
            model.register_buffer("table", torch.tensor(values, dtype=dtype), persistent=persistent)
            with pushpull.LocalServer(config_text(batch=8, steps=1)) as server:
                with pushpull.torch.Trainer(server, model, show_progress=False) as trainer:
                    for batch in trainer.batches(DATA):
                        trainer.step(loss_of(model, batch), samples=len(batch))
            self.assertEqual(model.table.tolist(), values)

        for dtype, value, kept in ((torch.int32, 999999937, 999999936), (torch.int64, 2**24 + 1, 2**24),
                                   (torch.int64, 2**63 - 1, 2**63), (torch.int32, 2**31 - 1, 2**31)):
            with self.subTest(value=value):
                with self.assertRaisesRegex(ValueError, rf"table\[1, 2\] is {value}, .* keep it as {kept}, .*=False"):
                    start(dtype, [[0, 1, 2], [3, 4, value]])
        with self.assertRaisesRegex(ValueError, "table is -16777217, and"):
            start(torch.int64, -2**24 - 1)
        start(torch.int64, 2**24 + 1, persistent=False)
        start(torch.int64, [-2**63, 2**62, 2**24, -2**24, 2**25 + 4])
        start(torch.uint8, [0, 255])

    def test_a_buffer_that_becomes_infinite_is_named_as_one(self):
        model = torch.nn.Linear(3, 1)
        model.register_buffer("state", torch.zeros(2))
        with pushpull.LocalServer(config_text(batch=8, steps=3)) as server:
            with self.assertRaisesRegex(pushpull.Error, r"statistic or buffer.*state\[1\] is inf"):
                with pushpull.torch.Trainer(server, model, show_progress=False) as trainer:
                    for batch in trainer.batches(DATA):
                        model.state[1] = float("inf")
                        trainer.step(loss_of(model, batch), samples=len(batch))


if __name__ == "__main__":
    main()
