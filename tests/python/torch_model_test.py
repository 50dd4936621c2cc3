"""What a PyTorch model may contain, and what goes wrong with one, in one process with a LocalServer."""
import gc
import time
import types
import weakref

from support import PATIENCE_S, PythonJobTest, config_text, main, skip_without_torch

skip_without_torch()

import numpy  # noqa: E402  pylint: disable=wrong-import-position
import torch  # noqa: E402  pylint: disable=wrong-import-position

import pushpull  # noqa: E402  pylint: disable=wrong-import-position
import pushpull.torch  # noqa: E402  pylint: disable=wrong-import-position
from pushpull import _torch_data  # noqa: E402  pylint: disable=wrong-import-position
from pushpull._torch_variables import check_unchanged, declare  # noqa: E402  pylint: disable=wrong-import-position

DATA = [(torch.full((3,), float(i)) / 10, float(i % 3)) for i in range(12)]


def make_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


class Model(PythonJobTest):

    def serve(self, num_clones=1, **changes):
        server = pushpull.LocalServer(config_text(**{"batch": 6, "steps": 3, **changes}), num_clones=num_clones)
        self.addCleanup(server.close)
        return server

    def trainer(self, model, server=None, **options):
        trainer = pushpull.torch.Trainer(server or self.serve(), model, show_progress=False, **options)
        self.addCleanup(trainer.close)
        return trainer

    def train(self, trainer, model, data=None, **options):
        """Trains to the end. Returns the batches."""
        seen = []
        for batch in trainer.batches(DATA if data is None else data, **options):
            loss = ((model(batch.x).squeeze(1) - batch.y)**2).mean()
            trainer.step(loss, samples=len(batch))
            seen.append(batch)
        return seen

    def test_order_of_the_variables_and_what_batches_yield(self):
        model = make_model()
        trainer = self.trainer(model)
        batches = self.train(trainer, model)
        self.assertEqual([(batch.position, batch.replica, len(batch)) for batch in batches],
                         [(0, 0, 6), (1, 0, 6), (2, 0, 6)])
        self.assertEqual(sorted(batches[0].indices + batches[1].indices), list(range(12)))
        self.assertTrue(torch.equal(batches[0].x[2], DATA[batches[0].indices[2]][0]))
        self.assertEqual(batches[0].data[1].tolist(), batches[0].y.tolist())
        self.assertTrue(all(parameter.grad is None for parameter in model.parameters()))

    def test_batches_of_other_forms(self):
        model = torch.nn.Linear(3, 1)
        trainer = self.trainer(model)
        for batch in trainer.batches([x for x, _ in DATA], collate_fn=lambda xs: {"input": torch.stack(xs)},
                                     num_samples=8, shuffle=False):
            self.assertEqual(batch.x["input"].shape, (6, 3))
            with self.assertRaisesRegex(AttributeError, "is not a pair"):
                _ = batch.y
            expected = [(6 * batch.position + i) % 8 for i in range(6)]
            self.assertEqual(batch.indices, expected)
            trainer.step(model(batch.x["input"]).mean(), samples=6)
        stream = type("Stream", (torch.utils.data.IterableDataset,), {"__iter__": lambda self: iter(DATA)})()
        with self.assertRaisesRegex(TypeError, "IterableDataset"):
            trainer.batches(stream)

    def test_frozen_unused_and_shared_parameters_and_options(self):
        class Odd(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Linear(3, 3)
                self.again = self.first
                self.frozen = torch.nn.Parameter(torch.full((2,), 7.0), requires_grad=False)
                self.unused = torch.nn.Parameter(torch.ones(2))
                self.slow = torch.nn.Parameter(torch.zeros(()))
                self.register_buffer("cache", torch.ones(2), persistent=False)
                self.register_buffer("empty", torch.ones(0))
                self.last = torch.nn.Linear(3, 1)
                self.last.weight.requires_grad_(False)

            def forward(self, x):
                return self.last(self.again(self.first(x))) + self.slow

        torch.manual_seed(3)
        model = Odd()
        initial = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        expected = Odd()
        expected.load_state_dict(initial)
        server = self.serve()

        def options(name, parameter):
            return {"learning_rate_multiplier": 0.0} if name == "slow" else {} if name == "unused" else None

        batches = self.train(self.trainer(model, server, options=options), model)
        server.wait(60)
        self.assertEqual(list(pushpull.load(server.train_dir)),
                         ["frozen", "unused", "slow", "first.weight", "first.bias", "last.weight", "last.bias"])
        expected.slow.requires_grad_(False)
        optimizer = torch.optim.SGD([p for p in expected.parameters() if p.requires_grad], lr=0.05, momentum=0.9)
        for batch in batches:
            optimizer.zero_grad()
            ((expected(batch.x).squeeze(1) - batch.y)**2).mean().backward()
            optimizer.step()
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(tensor, expected.state_dict()[name], atol=1e-5, rtol=1e-5, msg=name)
        self.assertFalse(torch.equal(model.first.weight, initial["first.weight"]))

    def test_options_that_cannot_be_used(self):
        for returned, error, message in ((1e-4, TypeError, "returned 0.0001, expected a mapping, such as {'weight_decay'"),
                                         ([], TypeError, r"returned \[\], expected a mapping"),
                                         ({"lr": 1.0}, ValueError, "returned 'lr', expected weight_decay or learning_")):
            with self.subTest(returned=returned), self.assertRaisesRegex(error, rf"options\('0.weight', ...\) {message}"):
                declare(make_model(), lambda name, parameter, value=returned: value)

    def test_other_types_and_buffers(self):
        class Typed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(3, 1, dtype=torch.bfloat16)
                self.norm = torch.nn.BatchNorm1d(1, momentum=None)
                self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
                self.register_buffer("flag", torch.zeros(2, dtype=torch.bool))
                self.embedding = torch.nn.Embedding(4, 2, sparse=True)

            def forward(self, x):
                self.seen += 1
                self.flag = torch.tensor([True, False])
                return self.norm(self.layer(x.bfloat16()).float()) + self.embedding(torch.tensor([1])).sum()

        model = Typed()
        server = self.serve()
        before = model.embedding.weight.detach().clone()
        self.train(self.trainer(model, server), model)
        server.wait(60)
        stored = pushpull.load(server.train_dir)
        self.assertEqual((int(model.seen), model.flag.tolist(), model.layer.weight.dtype),
                         (3, [True, False], torch.bfloat16))
        self.assertEqual((stored["seen"].item(), stored["flag"].tolist()), (3.0, [1.0, 0.0]))
        self.assertEqual(stored["norm.num_batches_tracked"].item(), 3.0)
        changed = (model.embedding.weight != before).any(dim=1).tolist()
        self.assertEqual(changed, [False, True, False, False])

    def test_tensors_that_cannot_be_stored(self):
        server = self.serve()
        for attribute, tensor, message in (
                ("wave", torch.nn.Parameter(torch.ones(2, dtype=torch.cfloat)), "wave has the dtype torch.complex64"),
                ("small", torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "small is quantized"),
                ("thin", torch.eye(2).to_sparse(), "thin has the layout"),
                ("later", torch.nn.UninitializedParameter(), "later has no shape yet"),
                ("ghost", torch.ones(2, device="meta"), "ghost is on the device `meta`"),
                ("mean", torch.zeros(1).expand(4), r"mean was expanded, .*clone\(\)")):
            with self.subTest(message=message):
                model = make_model()
                if isinstance(tensor, torch.nn.Parameter):
                    setattr(model, attribute, tensor)
                else:
                    model.register_buffer(attribute, tensor)
                with self.assertRaisesRegex(TypeError, f"the tensor {message}"):
                    pushpull.torch.Trainer(server, model)

    def test_a_new_axis_of_one_element_is_no_obstacle(self):
        model = make_model()
        model.register_buffer("position", torch.arange(4).expand(1, -1))
        self.assertEqual(len(self.train(self.trainer(model), model)), 3)

    def test_hook_or_forward_that_raises_gives_the_batch_up(self):
        for how in ("hook", "forward"):
            with self.subTest(how=how):
                server = self.serve()
                model = make_model()

                def fail(gradient):
                    raise ZeroDivisionError("on purpose")

                with self.assertRaisesRegex(ZeroDivisionError, "on purpose"):
                    with self.trainer(model, server) as trainer:
                        for batch in trainer.batches(DATA):
                            if how == "forward":
                                fail(None)
                            hook = model[0].weight.register_hook(fail)
                            trainer.step(model(batch.x).mean(), samples=len(batch))
                with self.assertRaisesRegex(pushpull.Error, "gave up a batch: ZeroDivisionError: on purpose"):
                    trainer.batches(DATA)
                if how == "hook":
                    hook.remove()
                self.assertEqual(len(self.train(self.trainer(model, server), model)), 3)

    def test_losses_that_cannot_be_used(self):
        model = make_model()
        trainer = self.trainer(model)
        with self.assertRaisesRegex(pushpull.Error, "no batch to finish"):
            trainer.step(torch.zeros(()), samples=1)
        batch = next(trainer.batches(DATA))
        with self.assertRaisesRegex(ValueError, r"the loss has the shape \[6, 1\]"):
            trainer.step(model(batch.x), samples=6)
        for samples, error in ((0, ValueError), (-1, ValueError), (2**64 + 4, ValueError), (6.0, TypeError)):
            with self.assertRaisesRegex(error, f"samples={samples}"):
                trainer.step(model(batch.x).mean(), samples=samples)
        trainer.step(model(batch.x).mean(), samples=torch.tensor(6))
        self.assertEqual(len(self.train(trainer, model)), 2)

    def test_not_a_number_stops_the_job(self):
        model = make_model()
        with self.assertRaisesRegex(pushpull.Error, "non-finite"):
            self.train(self.trainer(model), model, [(x * float("nan"), y) for x, y in DATA])

    def test_not_a_number_is_skipped(self):
        model = make_model()
        before = model[0].weight.detach().clone()
        server = self.serve(train="non_finite_policy: SKIP")
        self.train(self.trainer(model, server), model, [(x * float("nan"), y) for x, y in DATA])
        self.assertTrue(torch.equal(model[0].weight, before))

    def test_model_that_was_changed_after_registration(self):
        def add(model):
            model.extra = torch.nn.Linear(1, 1)

        def replace(model):
            model[2].weight = torch.nn.Parameter(torch.zeros(1, 4))

        def remove(model):
            model[2].bias = None

        def reshape(model):
            model[0].bias.data = torch.zeros(5)

        def retype(model):
            model.double()

        def freeze(model):
            model[0].weight.requires_grad_(False)

        def replace_statistics(model):
            model[3] = torch.nn.BatchNorm1d(1, affine=False)

        def remove_statistics(model):
            model[3] = torch.nn.Identity()

        def add_buffer(model):
            model[1].register_buffer("extra", torch.ones(3))

        for change, message in ((add, "extra.weight was added or replaced"),
                                (replace, "2.weight was added or replaced"),
                                (remove, "2.bias was removed"),
                                (reshape, r"0.bias had the shape \[4\] .* and has the shape \[5\] now"),
                                (retype, "0.weight was of torch.float32 .* and is of torch.float64 now"),
                                (freeze, "0.weight was trainable .* and is frozen now"),
                                (replace_statistics, "the buffer 3.running_mean was added or replaced"),
                                (remove_statistics, "the buffer 3.running_mean was removed or replaced"),
                                (add_buffer, "the buffer 1.extra was added or replaced")):
            with self.subTest(change=change.__name__):
                model = torch.nn.Sequential(*make_model(), torch.nn.BatchNorm1d(1, affine=False))
                trainer = self.trainer(model)
                with self.assertRaisesRegex(pushpull.ModelChangedError, message):
                    for batch in trainer.batches(DATA):
                        trainer.step(model(batch.x).mean(), samples=len(batch))
                        change(model)
                trainer.close()

    def test_buffers_that_are_no_change_of_the_model(self):
        class Remembers(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(3, 1)
                self.register_buffer("now", torch.zeros(1))
                self.register_buffer("before", torch.zeros(1))
                self.register_buffer("last", None)

            def forward(self, x):
                self.register_buffer("cache", x, persistent=False)
                y = self.layer(x)
                self.before = self.now  # from now on one tensor is in both places
                self.now = y.detach().mean(0) if self.training else self.now
                self.last = self.now  # it was None when the model was registered
                return y

        for mode in (True, False):
            model = Remembers().train(mode)
            self.assertEqual(len(self.train(self.trainer(model), model)), 3)
        # In a job whose model the server knows, buffers without a variable are the clone's own.
        variables = [pushpull.torch.ServerVariable(name, name) for name in ("layer.weight", "layer.bias", "now")]
        entries = declare(model, None, variables)
        model.register_buffer("own", torch.ones(2))
        check_unchanged(model, entries)
        model.now = None
        with self.assertRaisesRegex(pushpull.ModelChangedError, "the buffer now is no longer in the model"):
            check_unchanged(model, entries)

    def test_another_model(self):
        server = self.serve(steps=1000)
        first = self.trainer(make_model(), server)
        next(first.batches(DATA))
        other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        with self.assertRaisesRegex(pushpull.FailedPreconditionError, r"2\.weight.*\[(1|2), 4\].*\[(1|2), 4\]"):
            self.trainer(other, server).batches(DATA)

    def test_forked_worker_of_a_data_loader(self):
        model = make_model()
        trainer = self.trainer(model)

        class Wrong(torch.utils.data.Dataset):
            def __len__(self):
                return 12

            def __getitem__(self, index):
                return torch.ones(3), float(trainer.ps.progress().step)

        with self.assertRaisesRegex(pushpull.ForkedProcessError, "worker processes of a DataLoader must not use"):
            next(trainer.batches(Wrong(), num_workers=1))

    def test_batches_loaded_ahead(self):
        expected = self.train(self.trainer(model := make_model()), model)
        seen = self.train(self.trainer(model := make_model()), model, num_workers=2)
        for first, second in zip(expected, seen):
            self.assertEqual(first.indices, second.indices)
            self.assertTrue(torch.equal(first.x, second.x))

    def test_augmentation_does_not_depend_on_the_division_of_a_batch(self):
        class Noisy(torch.utils.data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, index):
                return torch.rand(2) + index

        class NoisyBatches:
            def __len__(self):
                return 8

            def __getitems__(self, indices):
                return [torch.rand(2) + index for index in indices]

        job = types.SimpleNamespace(seed=5, sync=True)
        for data in (Noisy(), torch.utils.data.Subset(Noisy(), range(8)), NoisyBatches()):
            shares = _torch_data.Shares(data, None, job, True)
            whole = shares[_torch_data.Share(3, 0, list(range(8)))].data
            parts = [shares[_torch_data.Share(3, 0, [0, 1, 2])].data,
                     shares[_torch_data.Share(3, 1, [3, 4, 5, 6, 7])].data]
            self.assertTrue(torch.equal(torch.cat(parts), whole))

    def test_two_trainers_in_one_process(self):
        server = self.serve(num_clones=2, steps=20)
        models = [make_model(), make_model()]
        trainers = [self.trainer(model, server) for model in models]
        results = [self.in_thread(self.train, trainer, model) for trainer, model in zip(trainers, models)]
        shares = [result() for result in results]
        self.assertEqual([len(batches) for batches in shares], [20, 20])
        for one, other in zip(*shares):
            self.assertEqual(len(one) + len(other), 6)
            self.assertFalse(set(one.indices) & set(other.indices))
        for one, other in zip(models[0].parameters(), models[1].parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_a_trainer_that_is_dropped_leaves_the_job(self):
        server = self.serve(steps=1000)
        for rest in ("the model stays", "the model is dropped"):
            with self.subTest(rest=rest):
                model = make_model()
                trainer = pushpull.torch.Trainer(server.connect(), model, show_progress=False)
                for batch in trainer.batches(DATA):
                    trainer.step(model(batch.x).mean(), samples=len(batch))
                    break
                parameters, freed = list(model.parameters()), [weakref.ref(trainer), weakref.ref(trainer.ps)]
                if rest == "the model is dropped":
                    freed.append(weakref.ref(model))
                    parameters = []
                del trainer, model, batch
                gc.collect()
                self.assertEqual([reference() for reference in freed], [None] * len(freed))
                self.assertFalse(any(parameter._post_accumulate_grad_hooks for parameter in parameters))
        deadline = time.monotonic() + PATIENCE_S
        while server.log().count("was stopped and has left") < 2:
            self.assertLess(time.monotonic(), deadline, server.log())
            time.sleep(0.05)

    def test_loops_after_the_end_keep_no_copies_of_the_weights(self):
        model = make_model()
        trainer = self.trainer(model)
        self.train(trainer, model)
        last = model[0].weight.detach().clone()
        views = len(trainer._views)
        for _ in range(3):
            torch.nn.init.zeros_(model[0].weight)
            self.assertEqual(self.train(trainer, model), [])
            self.assertTrue(torch.equal(model[0].weight, last))
        self.assertEqual(len(trainer._views), views)

    def test_gradients_of_earlier_backward_passes_are_added(self):
        model = torch.nn.Linear(3, 1, bias=False)
        start = model.weight.detach().clone()
        trainer = self.trainer(model, self.serve(steps=1))
        for batch in trainer.batches(DATA):
            half = model(batch.x).mean() / 2
            half.backward(retain_graph=True)
            trainer.step(half, samples=len(batch))
            gradient = batch.x.mean(dim=0)
        numpy.testing.assert_allclose(model.weight.detach()[0], start[0] - 0.05 * gradient, atol=1e-6)

    def test_loading_into_another_model(self):
        server = self.serve()
        self.train(self.trainer(model := make_model(), server), model)
        server.wait(60)
        with self.assertRaisesRegex(pushpull.ModelChangedError, "has no variable 3.weight"):
            pushpull.torch.load_state_dict(torch.nn.Sequential(*make_model(), torch.nn.Linear(1, 1)), server.train_dir)
        with self.assertWarnsRegex(UserWarning, "does not use 2 variables of .*, such as 2.bias"):
            pushpull.torch.load_state_dict(torch.nn.Sequential(*make_model()[:2]), server.train_dir)


if __name__ == "__main__":
    main()
