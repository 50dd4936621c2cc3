"""The variables of a PyTorch model: what the server is told of them, and how their values are moved."""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional, Union

import numpy
import torch

from pushpull._integers import check_integers
from pushpull._torch_mapping import ServerVariable
from pushpull.errors import ModelChangedError
from pushpull.parameter_server import FloatArray, Variable

# Called with the name and the parameter. Returns what differs from the defaults: "weight_decay",
# "learning_rate_multiplier". None: nothing does.
Options = Callable[[str, torch.nn.Parameter], Optional[Mapping[str, float]]]
_OPTION_NAMES = ("weight_decay", "learning_rate_multiplier")


@dataclasses.dataclass
class Entry:
    """One variable with the tensor that holds it in the model."""
    variable: Variable
    dtype: torch.dtype
    holder: Union[torch.nn.Parameter, tuple[torch.nn.Module, str]]  # a parameter, or the place of a buffer
    momentum: Optional[float] = None  # of running statistics: new = (1 - momentum) * old + momentum * statistic
    place: Optional[ServerVariable] = None  # where a server that knows the model has it

    @property
    def name(self) -> str:
        """The name in the model, such as "features.0.weight"."""
        return self.variable.name if self.place is None else self.place.tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in the model."""
        back = None if self.place is None else self.place.back()
        return self.variable.shape if back is None else tuple(self.variable.shape[axis] for axis in back)

    def view(self, values: torch.Tensor) -> torch.Tensor:
        """Returns values of the server's variable, in C order, as a view of the tensor's shape."""
        values = values.view(self.variable.shape)
        back = None if self.place is None else self.place.back()
        return values if back is None else values.permute(back)

    def tensor(self) -> torch.Tensor:
        """Returns the tensor that the model uses now. A buffer may be replaced by assignment."""
        if isinstance(self.holder, torch.nn.Parameter):
            return self.holder
        module, name = self.holder
        buffer = module._buffers.get(name)
        if buffer is None:
            raise ModelChangedError(f"the buffer {self.name} is no longer in the model")
        return buffer


def _check_storable(name: str, tensor: torch.Tensor) -> None:
    """Raises TypeError, which names the tensor, if its values cannot be kept as float32 or be replaced."""
    problem = ""
    if isinstance(tensor, (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer)):
        problem = "has no shape yet; call the model once before it is registered"
    elif tensor.is_complex():
        problem = f"has the dtype {tensor.dtype}, which cannot be stored as float32"
    elif tensor.is_quantized:
        problem = f"is quantized ({tensor.dtype}), which cannot be stored as float32"
    elif tensor.layout != torch.strided:
        problem = f"has the layout {tensor.layout}, but only dense tensors can be stored"
    elif tensor.device.type == "meta":
        problem = "is on the device `meta` and has no values"
    elif any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride())):
        problem = "was expanded, so that several elements share one place in memory; use its clone()"
    if problem:
        raise TypeError(f"the tensor {name} {problem}")


def _end(tensor: torch.Tensor) -> int:
    """Returns the address after the tensor's last element."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()


def _marks_of(tensor: torch.Tensor, marks: torch.Tensor, start: int, unit: int) -> torch.Tensor:
    """Returns the marks of the memory that belongs to the tensor's elements.

    marks: bool, one for each `unit` bytes from the address `start` on.
    """
    size = tensor.element_size() // unit
    strides = [stride * size for stride in tensor.stride()]
    return marks.as_strided([*tensor.shape, size], [*strides, 1], (tensor.data_ptr() - start) // unit)


def _shared(tensors: list[torch.Tensor]) -> Optional[tuple[int, int]]:
    """Returns the indices of two tensors with a byte that belongs to an element of each, or None.

    tensors: on one device, in the order of their addresses, each of which begins before one of those before it ends.
    """
    for i, (one, other) in enumerate(zip(tensors, tensors[1:])):
        if one.is_contiguous() and other.is_contiguous() and other.data_ptr() < _end(one):
            return i, i + 1  # neither has gaps
    start = tensors[0].data_ptr()
    unit = math.gcd(*(tensor.element_size() for tensor in tensors), *(tensor.data_ptr() - start for tensor in tensors))
    # PyTorch's default device may be another one, even one without values.
    marks = torch.zeros((max(map(_end, tensors)) - start) // unit, dtype=torch.bool, device="cpu")
    parts = [_marks_of(tensor, marks, start, unit) for tensor in tensors]
    for i, part in enumerate(parts):
        if part.any():
            for first, earlier in enumerate(parts[:i]):
                marks.fill_(False)
                earlier.fill_(True)
                if part.any():
                    return first, i
        part.fill_(True)
    return None


def _check_apart(entries: list[Entry]) -> None:
    """Raises TypeError, which names both, if two tensors share memory: each would be loaded over the other.

    Views of one vector, or of one matrix, that have no element in common are no problem.
    """
    # A tensor that only wraps others has no address of its own: it is 0.
    ordered = sorted((entry for entry in entries if entry.tensor().data_ptr() != 0),
                     key=lambda entry: (str(entry.tensor().device), entry.tensor().data_ptr()))
    runs: list[list[Entry]] = []  # each of tensors whose ranges of addresses meet
    end = 0
    for entry in ordered:
        tensor = entry.tensor()
        if runs and tensor.device == runs[-1][0].tensor().device and tensor.data_ptr() < end:
            runs[-1].append(entry)
            end = max(end, _end(tensor))
        else:
            runs.append([entry])
            end = _end(tensor)
    for run in runs:
        pair = _shared([entry.tensor() for entry in run]) if len(run) > 1 else None
        if pair is not None:
            raise TypeError(f"the tensors {run[pair[0]].name} and {run[pair[1]].name} share memory, so that each would "
                            "be loaded over the other; use one Parameter object in both places, or clone() one")


def _momentum(module: torch.nn.Module, buffer: str) -> Optional[float]:
    """Returns the momentum with which a module updates the buffer; None if it does not update it in this way."""
    if not isinstance(module, torch.nn.modules.batchnorm._NormBase) or buffer not in ("running_mean", "running_var"):
        return None
    # None stands for a cumulative average, and with 0 the buffer never changes.
    return float(module.momentum) if module.momentum is not None and 0 < module.momentum <= 1 else None


def _buffers(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module, str]]:
    """Yields the persistent buffers that have elements, each once: full name, module and the name in it."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is None or name in module._non_persistent_buffers_set or id(buffer) in seen:
                continue
            seen.add(id(buffer))
            # An uninitialized buffer does not know its size; _check_storable names it.
            if isinstance(buffer, torch.nn.UninitializedBuffer) or buffer.numel() > 0:
                yield (f"{prefix}.{name}" if prefix else name), module, name


def declare(model: torch.nn.Module, options: Optional[Options],
            variables: Optional[Sequence[ServerVariable]] = None) -> list[Entry]:
    """Returns the model's variables: its parameters in the order of its modules, then its persistent buffers.

    A parameter that several modules share appears once. Tensors without elements are left out. Raises TypeError if a
    tensor cannot be stored, or if two share memory. variables: those of a server that knows the model, in its order;
    see `place`. Such a server takes no options from a clone, so both together are a ValueError.
    """
    if options is not None and variables is not None:
        raise ValueError("options and variables are both given, but a server that knows the model takes weight decay and "
                         "learning rates from its pipeline config alone: set them there, and leave options out")
    entries = _entries(model, options)
    if variables is not None:
        entries = place(entries, variables)
    if not entries:
        raise ValueError("the model has neither parameters nor buffers")
    _check_apart(entries)
    return entries


def place(entries: list[Entry], variables: Sequence[ServerVariable]) -> list[Entry]:
    """Returns the entries in the server's order, with its names and shapes. Buffers without a variable are left out.

    Raises ValueError, which names the tensor, if the variables do not fit the model.
    """
    by_name = {entry.name: entry for entry in entries}
    placed = []
    for variable in variables:
        entry = by_name.pop(variable.tensor, None)
        if entry is None:
            raise ValueError(f"{variable.name} is said to hold the tensor {variable.tensor!r}, which the model does not "
                             "have, or which another variable holds")
        variable.check(entry.shape)
        declared = dataclasses.replace(entry.variable, name=variable.name, shape=variable.shape_of(entry.shape))
        placed.append(dataclasses.replace(entry, variable=declared, place=variable))
    for name, entry in by_name.items():
        if isinstance(entry.holder, torch.nn.Parameter):
            raise ValueError(f"no variable of the server holds the parameter {name}")
    return placed


def _settings(options: Optional[Options], name: str, parameter: torch.nn.Parameter) -> dict[str, Any]:
    """Returns what `options` says of the parameter. Raises TypeError or ValueError, which names it, if that is wrong."""
    returned = None if options is None else options(name, parameter)
    if returned is None:
        return {}
    if not isinstance(returned, Mapping):
        raise TypeError(f"options({name!r}, ...) returned {returned!r}, expected a mapping, such as "
                        f"{{{_OPTION_NAMES[0]!r}: 1e-4}}, or None")
    for option in returned:
        if option not in _OPTION_NAMES:
            raise ValueError(f"options({name!r}, ...) returned {option!r}, expected {' or '.join(_OPTION_NAMES)}")
    return dict(returned)


def _entries(model: torch.nn.Module, options: Optional[Options]) -> list[Entry]:
    entries = []
    for name, parameter in model.named_parameters():
        _check_storable(name, parameter)
        if parameter.numel() == 0:
            continue
        settings = _settings(options, name, parameter)
        variable = Variable(name, tuple(parameter.shape), frozen=not parameter.requires_grad, **settings)
        entries.append(Entry(variable, parameter.dtype, parameter))
    for name, module, key in _buffers(model):
        buffer = module._buffers[key]
        assert buffer is not None
        _check_storable(name, buffer)
        momentum = _momentum(module, key)
        decay = 0.0 if momentum is None else 1.0 - momentum
        variable = Variable(name, tuple(buffer.shape), moving_statistic=True, moving_average_decay=decay)
        entries.append(Entry(variable, buffer.dtype, (module, key), momentum))
    return entries


def _raise_difference(model: torch.nn.Module, registered: list[Entry]) -> None:
    """Raises ModelChangedError for the first parameter that was added, replaced or removed."""
    known = {id(entry.holder) for entry in registered}
    for name, parameter in model.named_parameters():
        if parameter.numel() > 0 and id(parameter) not in known:
            raise ModelChangedError(f"the parameter {name} was added or replaced after the model was registered; "
                                    "create a new job for the changed model")
    present = {id(parameter) for parameter in model.parameters()}
    for entry in registered:
        if id(entry.holder) not in present:
            raise ModelChangedError(f"the parameter {entry.name} was removed after the model was registered")
    # Another order of the same modules changes nothing here.


def _check_buffers(model: torch.nn.Module, entries: list[Entry]) -> None:
    """Raises ModelChangedError for the first buffer that was added or whose module was replaced or removed."""
    registered = {entry.holder: entry for entry in entries if isinstance(entry.holder, tuple)}
    if all(entry.place is None for entry in entries):  # otherwise buffers without a variable are the clone's own
        added = [(name, module, key) for name, module, key in _buffers(model) if (module, key) not in registered]
        known = {id(entry.tensor()) for entry in registered.values()} if added else set()
        for name, module, key in added:
            if id(module._buffers[key]) not in known:  # a registered buffer may be assigned to another one
                raise ModelChangedError(f"the buffer {name} was added or replaced after the model was registered; "
                                        "create a new job for the changed model")
    modules = set(model.modules())
    for (module, _), entry in registered.items():
        if module not in modules:
            raise ModelChangedError(f"the buffer {entry.name} was removed or replaced after the model was registered")


def check_unchanged(model: torch.nn.Module, entries: list[Entry]) -> None:
    """Raises ModelChangedError, which names the first difference, if the model is not as it was declared."""
    registered = [entry for entry in entries if isinstance(entry.holder, torch.nn.Parameter)]
    parameters = [parameter for parameter in model.parameters() if parameter.numel() > 0]
    if len(parameters) != len(registered) or any(a is not b.holder for a, b in zip(parameters, registered)):
        _raise_difference(model, registered)
    _check_buffers(model, entries)
    for entry in entries:
        tensor = entry.tensor()
        if tensor.shape != entry.shape:
            raise ModelChangedError(f"{entry.name} had the shape {list(entry.shape)} when the model was "
                                    f"registered, and has the shape {list(tensor.shape)} now")
        if tensor.dtype != entry.dtype:
            raise ModelChangedError(f"{entry.name} was of {entry.dtype} when the model was registered, and is of "
                                    f"{tensor.dtype} now")
        if isinstance(entry.holder, torch.nn.Parameter) and tensor.requires_grad == entry.variable.frozen:
            was, now = ("frozen", "trainable") if entry.variable.frozen else ("trainable", "frozen")
            raise ModelChangedError(f"{entry.name} was {was} when the model was registered, and is {now} now "
                                    "(requires_grad)")


def value_of(entry: Entry) -> FloatArray:
    """Returns the tensor's value as float32."""
    tensor = entry.tensor().detach().to("cpu", torch.float32)
    if entry.place is not None and entry.place.axes is not None:
        tensor = tensor.permute(entry.place.axes)
    array: FloatArray = tensor.contiguous().numpy()
    return array


def check_value(entry: Entry, value: FloatArray) -> None:
    """Raises ValueError if a buffer has values that the server does not take, or integers that float32 does not hold.

    value: what value_of has returned.
    """
    if not entry.dtype.is_floating_point and entry.dtype != torch.bool:
        check_integers(entry.name, entry.tensor().detach().cpu().numpy(),
                       "keep the tensor out of the job by register_buffer(..., persistent=False)")
    if entry.variable.moving_statistic and not numpy.isfinite(value).all():
        raise ValueError(f"the buffer {entry.name} has values that are not finite, which the server does not take; if "
                         "they are part of the program, keep the buffer out of the job by register_buffer(..., "
                         "persistent=False)")


def views_of(array: FloatArray, entries: list[Entry], offsets: list[int]) -> list[torch.Tensor]:
    """Returns the parts of a flat vector as tensors that share its memory, in the order of the entries."""
    flat = torch.from_numpy(array)
    return [entry.view(flat[offset:offset + entry.variable.size]) for entry, offset in zip(entries, offsets)]


@torch.no_grad()
def load(entries: list[Entry], views: list[torch.Tensor]) -> None:
    """Copies values from the views into the model. Integers are rounded."""
    for entry, view in zip(entries, views):
        is_exact = entry.dtype.is_floating_point
        entry.tensor().copy_(view if is_exact else view.round())


def count_passes(entries: list[Entry]) -> list[int]:
    """Returns for each running statistic how many batches its module has normalised; 0 where that is not counted."""
    counts: dict[torch.nn.Module, int] = {}
    passes = []
    for entry in entries:
        if entry.momentum is None or isinstance(entry.holder, torch.nn.Parameter):
            passes.append(0)
            continue
        module = entry.holder[0]
        if module not in counts:
            counter = module.num_batches_tracked
            counts[module] = int(counter) if isinstance(counter, torch.Tensor) else 0
        passes.append(counts[module])
    return passes


@torch.no_grad()
def store_statistics(entries: list[Entry], old: list[torch.Tensor], into: list[torch.Tensor],
                     passes: Sequence[int] = ()) -> None:
    """Writes what the clone pushes for its buffers.

    A running statistic is new = (1 - m) * old + m * s with the statistic s of the batch. The server computes the same
    formula with the mean of all clones' s, so s is pushed: (new - (1 - m) * old) / m. Other buffers are pushed as they
    are.

    passes: in an asynchronous job, by entry: how often the model has updated the statistic since it was loaded; less
    than 1 counts as 1. After k passes new = (1 - m)^k * old + (1 - (1 - m)^k) * s, where s is a mean of the statistics
    of the passes. That s is pushed. The formula above would also push a negative multiple of `old`, which only cancels
    if the server still has that value. In an asynchronous job it may have a newer one, and a variance became negative.
    """
    groups: dict[tuple[float, torch.dtype, int], list[int]] = {}  # running statistics that one formula serves
    for i, entry in enumerate(entries):
        if not entry.variable.moving_statistic:
            continue
        if entry.momentum is None:
            into[i].copy_(entry.tensor())
        else:
            groups.setdefault((entry.momentum, entry.dtype, max(1, passes[i]) if passes else 1), []).append(i)
    for (momentum, dtype, count), indices in groups.items():
        new = torch.cat([entries[i].tensor().detach().reshape(-1).to("cpu") for i in indices])
        start = torch.cat([old[i].reshape(-1) for i in indices]).to(dtype)  # what the model has computed with
        kept = (1.0 - momentum)**count
        statistic = (new.double() - kept * start.double()) / (momentum if count == 1 else 1.0 - kept)
        # An unchanged value is pushed as it is, because the formula would add rounding errors to it.
        statistic = torch.where(new == start, new.double(), statistic).float()
        for i, part in zip(indices, torch.split(statistic, [entries[i].variable.size for i in indices])):
            into[i].copy_(part.view(into[i].shape))
