"""How the shares of a data set are loaded: pairs, batches that are asked for again, and several trainers."""
import time
import types
import unittest
import warnings
import weakref
from unittest import mock

from support import PythonJobTest, config_text, main, skip_without_torch

skip_without_torch()

import numpy  # noqa: E402  pylint: disable=wrong-import-position
import torch  # noqa: E402  pylint: disable=wrong-import-position

import pushpull  # noqa: E402  pylint: disable=wrong-import-position
import pushpull.torch  # noqa: E402  pylint: disable=wrong-import-position
from pushpull._torch_data import Key, Loader, Share, Shares  # noqa: E402  pylint: disable=wrong-import-position

JOB = types.SimpleNamespace(seed=5, sync=True)


class Noisy(torch.utils.data.Dataset):
    """Examples with random numbers, which take a moment to draw."""

    def __init__(self, pause=0.0):
        self._pause = pause

    def __len__(self):
        return 40

    def __getitem__(self, index):
        value = torch.rand(3)
        time.sleep(self._pause)
        return value + torch.rand(3), float(index)


class Pairs(unittest.TestCase):

    def collated(self, collate, samples, dataset=None):
        shares = Shares(dataset if dataset is not None else Noisy(), collate, JOB, True)
        collated = shares[Share(0, 0, list(range(samples)))]
        return pushpull.torch.Batch(collated.data, list(range(samples)), 0, 0, 0, collated.is_pair)

    def test_whether_a_batch_is_a_pair_does_not_depend_on_its_size(self):
        for samples in (1, 2, 3, 5):
            for name, collate, is_pair in (
                    ("default", None, True),
                    ("transposed", lambda examples: tuple(zip(*examples)), True),
                    ("a list of two", lambda examples: list(torch.utils.data.default_collate(examples)), True),
                    ("the examples", lambda examples: examples, False),
                    ("one value for each", lambda examples: [x.sum() for x, _ in examples], False),
                    ("a tuple of values", lambda examples: tuple(y for _, y in examples), False)):
                with self.subTest(name=name, samples=samples):
                    batch = self.collated(collate, samples)
                    self.assertEqual(batch.is_pair, is_pair)
                    if is_pair:
                        self.assertEqual((len(batch.x), len(batch.y)), (samples, samples))
                    else:
                        self.assertEqual(len(batch.x), samples)
                        with self.assertRaisesRegex(AttributeError, "is not a pair"):
                            _ = batch.y
            with self.subTest(name="texts", samples=samples):
                self.assertFalse(self.collated(None, samples, ["a", "b", "c", "d", "e"]).is_pair)

    def test_a_collate_function_that_works_in_place_changes_each_example_once(self):
        def collate(examples):
            for value, _ in examples:
                value += 10
            return torch.stack([value for value, _ in examples]), torch.tensor([label for _, label in examples])

        expected = torch.stack([value for value, _ in self.collated(lambda examples: examples, 2).data]) + 10
        self.assertTrue(torch.equal(self.collated(collate, 2).x, expected))

    def test_examples_that_cannot_be_copied(self):
        class Texts:
            """Examples that a collate function can read once, and that copy.deepcopy refuses."""

            def __getitem__(self, index):
                return (letter for letter in f"text {index}")

        texts = self.collated(lambda examples: ["".join(one) for one in examples], 2, Texts())
        self.assertEqual((texts.is_pair, texts.x), (False, ["text 0", "text 1"]))
        pair = self.collated(lambda examples: ([len(list(one)) for one in examples], "labels"), 2, Texts())
        self.assertEqual((pair.is_pair, pair.x, pair.y), (True, [6, 6], "labels"))

    def test_a_collate_function_may_take_examples_apart(self):
        def collate(examples):
            labels = [example.pop("label") for example in examples]
            return torch.stack([example["x"] for example in examples]), torch.tensor(labels)

        shares = Shares([{"x": torch.ones(2), "label": i} for i in range(2)], collate, JOB, True)
        self.assertTrue(shares[Share(0, 0, [0, 1])].is_pair)

    def test_a_collate_function_that_needs_an_even_number_of_examples(self):
        def mixup(examples):
            if len(examples) % 2:
                raise AssertionError("batch size should be even")
            x, y = torch.utils.data.default_collate(examples)
            return (x + x.flip(0)) / 2, (y + y.flip(0)) / 2

        for samples in (2, 4):
            batch = self.collated(mixup, samples)
            self.assertTrue(batch.is_pair)
            self.assertEqual((batch.x.shape, batch.y.shape), ((samples, 3), (samples,)))
        with self.assertRaisesRegex(AssertionError, "should be even"):
            self.collated(mixup, 3)


class CountingLoader(Loader):
    """Counts how often worker processes were started and batches were loaded in this process."""
    starts, loaded_here = 0, 0

    def _start(self, key):
        self.starts += 1
        return super()._start(key)

    def _load_here(self, share):
        self.loaded_here += 1
        return super()._load_here(share)


class Repeated(unittest.TestCase):

    def loader(self, dataset, collate=None):
        loader = CountingLoader(Shares(dataset, collate, JOB, True), lambda key: [key.position, key.position + 1], 1)
        self.addCleanup(loader.close)
        return loader

    def test_a_batch_that_is_asked_for_again_starts_no_workers(self):
        loader = self.loader(Noisy())
        for position in range(4):
            first, again = [loader.load(Key(position, 0))[0] for _ in range(2)]
            self.assertTrue(torch.equal(first.data[0], again.data[0]))
        self.assertEqual((loader.starts, loader.loaded_here), (1, 4))

    def test_a_batch_that_the_program_has_changed_is_loaded_anew(self):
        def arrays(examples):
            return {"x": numpy.stack([value.numpy() for value, _ in examples])}

        for collate, key, loaded_here in ((None, 0, 1), (arrays, "x", 1)):
            with self.subTest(key=key):
                loader = self.loader(Noisy(), collate)
                first = loader.load(Key(3, 0))[0].data[key]
                expected = first + 0
                first *= 2
                again = loader.load(Key(3, 0))[0].data[key]
                self.assertTrue((again == expected).all())
                self.assertEqual((loader.starts, loader.loaded_here), (1, loaded_here))


class SeveralTrainers(PythonJobTest):

    def train(self, dropout, seed=True):
        """Trains two clones in threads. Returns the variables."""
        torch.manual_seed(0)
        models = [torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(dropout), torch.nn.Linear(8, 1))
                  for _ in range(2)]
        models[1].load_state_dict(models[0].state_dict())
        with pushpull.LocalServer(config_text(batch=8, steps=10), num_clones=2) as server:
            def loop(clone):
                with pushpull.torch.Trainer(server.connect(clone), models[clone], show_progress=False,
                                            seed=seed) as trainer:
                    for batch in trainer.batches(Noisy(pause=0.001)):
                        loss = ((models[clone](batch.x).squeeze(1) - batch.y)**2).mean() / 1000
                        trainer.step(loss, samples=len(batch))

            results = [self.in_thread(loop, clone) for clone in range(2)]
            for result in results:
                result()
            server.wait(60)
            return pushpull.load(server.train_dir)

    def test_random_data_sets_are_repeatable_in_several_threads(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first, second = self.train(0.0), self.train(0.0)
        for name, value in first.items():
            numpy.testing.assert_array_equal(value, second[name], name)

    def test_a_second_thread_that_seeds_the_generators_is_warned(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.train(0.0)
        self.assertEqual(sum("seed the same generators" in str(warning.message) for warning in caught), 1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.train(0.0, seed=False)
        self.assertFalse([warning for warning in caught if "generators" in str(warning.message)])

    def test_threads_that_begin_at_the_same_time_are_warned_once(self):
        class Slow:
            """A trainer that was closed, which takes long to find out."""

            @property
            def ps(self):
                time.sleep(0.5)
                return types.SimpleNamespace(closed=True)

        slow = Slow()
        with mock.patch.object(pushpull.torch, "_seeding", weakref.WeakSet([slow])):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.train(0.0)
        self.assertEqual(sum("seed the same generators" in str(warning.message) for warning in caught), 1)


if __name__ == "__main__":
    main()
