"""Which variable of the server holds which tensor of a PyTorch model, for a job whose model the server knows."""
from __future__ import annotations

import dataclasses
from typing import Optional

# Axes of ServerVariable for TensorFlow's layouts.
CONVOLUTION = (2, 3, 1, 0)  # [out, in, height, width] as [height, width, in, out]
DEPTHWISE = (2, 3, 0, 1)  # [channels, 1, height, width] as [height, width, channels, 1]
LINEAR = (1, 0)  # [out, in] as [in, out]


@dataclasses.dataclass(frozen=True)
class ServerVariable:
    """A variable of the server, and the tensor of the model that it holds.

    tensor: the parameter's or buffer's name in the model, "features.0.weight". name: the server's name,
    "MobilenetV2/Conv/weights". axes: axis i of the variable is axis axes[i] of the tensor; None: they are the same.
    """
    tensor: str
    name: str
    axes: Optional[tuple[int, ...]] = None

    def check(self, shape: tuple[int, ...]) -> None:
        """Raises ValueError if the axes are not those of a tensor of this shape."""
        if self.axes is not None and sorted(self.axes) != list(range(len(shape))):
            raise ValueError(f"{self.name} has the axes {list(self.axes)} of {self.tensor}, which has the shape "
                             f"{list(shape)}; expected each number below {len(shape)} once")

    def shape_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the variable's shape for a tensor of this shape."""
        return shape if self.axes is None else tuple(shape[axis] for axis in self.axes)

    def back(self) -> Optional[tuple[int, ...]]:
        """Returns the axes that turn the variable into the tensor."""
        return None if self.axes is None else tuple(self.axes.index(axis) for axis in range(len(self.axes)))
