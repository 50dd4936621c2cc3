"""Which integers the server's float32 holds."""
from __future__ import annotations

from typing import Any

import numpy
import numpy.typing


def check_integers(name: str, exact: numpy.typing.NDArray[Any], remedy: str) -> None:
    """Raises ValueError, which names the first integer that float32 does not hold and ends with `remedy`.

    name: of the variable. exact: its value, of an integer type.
    """
    kept = exact.astype(numpy.float32)
    # The largest integers are rounded up to a power of two that is outside the type's range.
    limits = numpy.iinfo(exact.dtype)
    fits = (kept >= float(limits.min)) & (kept < float(limits.max + 1))
    changed = ~fits | (numpy.where(fits, kept, 0).astype(exact.dtype) != exact)
    if changed.any():
        place = tuple(int(i) for i in numpy.argwhere(changed)[0])
        raise ValueError(f"{name}{list(place) if place else ''} is {exact[place]}, and the server would keep it as "
                         f"{kept[place]:.0f}, because it stores float32; {remedy}")
