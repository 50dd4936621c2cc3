"""PyTorch models with tensors that lie in one memory, or seem to."""
import unittest
from unittest import mock

from support import main, skip_without_torch

skip_without_torch()

import torch  # noqa: E402  pylint: disable=wrong-import-position

from pushpull import _torch_variables  # noqa: E402  pylint: disable=wrong-import-position
from pushpull._torch_variables import declare  # noqa: E402  pylint: disable=wrong-import-position


def model_of(**tensors):
    model = torch.nn.Module()
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.nn.Parameter):
            model.register_parameter(name, tensor)
        else:
            model.register_buffer(name, tensor)
    return model


class Memory(unittest.TestCase):

    def test_tensors_that_share_memory(self):
        table = torch.nn.Parameter(torch.ones(6, 4))
        flat = torch.ones(24)
        for case, tensors in (("a new Parameter", {"a": table, "b": torch.nn.Parameter(table)}),
                              ("a buffer", {"a": table, "b": table.data}),
                              ("a transposed one", {"a": table, "b": torch.nn.Parameter(table.detach().t())}),
                              ("a part", {"a": table.detach(), "b": torch.nn.Parameter(table.detach()[2:4, 3])}),
                              ("another type", {"a": flat, "b": flat.view(torch.int32)[23:]}),
                              ("a column", {"a": table.detach()[:, 1], "b": table.detach().view(torch.int16)[:, 3]}),
                              ("two parts", {"a": flat[:13], "b": flat[12:]})):
            with self.subTest(case), self.assertRaisesRegex(TypeError, "tensors [ab] and [ab] share memory, "):
                declare(model_of(**tensors), None)
        for case, tensors in (("the same object", {"a": table, "b": table}),
                              ("parts of a vector", {"a": flat[:5], "b": torch.nn.Parameter(flat[5:15]), "c": flat[15:]}),
                              ("columns", {"a": table.detach()[:, :2], "b": torch.nn.Parameter(table.detach()[:, 2:])}),
                              ("a type", {"a": table.detach()[:, 1], "b": table.detach().view(torch.int16)[:, 4]}),
                              ("one without elements", {"a": flat, "b": flat[3:3]})):
            with self.subTest(case):
                declare(model_of(**tensors), None)

    def columns(self, count):
        """Returns a model whose buffers are the columns of one matrix."""
        return model_of(**{f"c{i}": column for i, column in enumerate(torch.ones(50, count).unbind(1))})

    def test_many_tensors_of_one_memory_are_compared_in_one_pass(self):
        with mock.patch.object(_torch_variables, "_marks_of", wraps=_torch_variables._marks_of) as marks_of:
            declare(self.columns(200), None)
            self.assertEqual(marks_of.call_count, 200)  # it used to compare all pairs of them
            marks_of.reset_mock()
            with self.assertRaisesRegex(TypeError, "tensors a and b share memory, "):
                shared = torch.ones(24)
                declare(model_of(a=shared, b=shared[12:]), None)
            self.assertEqual(marks_of.call_count, 0)  # neither tensor has gaps

    def test_the_default_device_does_not_matter(self):
        model = self.columns(3)
        model.register_buffer("again", model.c1[2:4])
        self.addCleanup(torch.set_default_device, None)
        torch.set_default_device("meta")
        with self.assertRaisesRegex(TypeError, "the tensors c1 and again share memory, "):
            declare(model, None)


if __name__ == "__main__":
    main()
