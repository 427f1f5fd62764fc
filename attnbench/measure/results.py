"""Whether a function returns the same on both sides: by `==`, and numbers within rounding errors.

Base's process writes what it returned to a file, and head's reads it.
"""

import math
import pickle  # noqa: TID251 (a process of the same check wrote what this one reads)
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from attnbench.measure.server import Unmeasured, described
from attnbench.records.messages import Compared

LARGEST = 256 << 20  # bytes of what is kept
ROUNDING = 1e-8  # of a number in double precision, relative; sums in another order err far less


def keep(value: Any, path: str, tree: str) -> Compared:
    """Write what a function returned to a file. Raises `Unmeasured` where it cannot be kept."""
    try:
        text = pickle.dumps({"tree": tree, "value": value})
    except Exception as error:
        raise Unmeasured("failed", f"it cannot be pickled: {described(error)}") from error
    if len(text) > LARGEST:
        raise Unmeasured("failed", f"it has more than {LARGEST >> 20} MiB")
    Path(path).write_bytes(text)
    return Compared()


def compare(value: Any, path: str, tree: str) -> Compared:
    """What a function returned against what is kept in the file.

    `what` is how they differ, with an `error` of 1 where they do and an `allowed` one of 0. Raises
    `Unmeasured` where they cannot be compared.
    """
    try:
        kept = pickle.loads(Path(path).read_bytes())  # noqa: S301 (the user's own code wrote it)
    except Exception as error:
        raise Unmeasured("failed", f"base's cannot be read here: {described(error)}") from error
    what = difference(at_home(kept["value"], kept["tree"]), at_home(value, tree))
    return Compared(what=what, error=float(bool(what)))


def at_home(value: Any, tree: str) -> Any:
    """A text without the place of the tree, which differs between the sides; else the value."""
    return value.replace(tree, "") if isinstance(value, str) else value


def difference(ours: Any, theirs: Any) -> str:
    """How a value of head, the second, differs from that of base, in words; empty if it does not.

    Raises `Unmeasured` for objects that have no `==`.
    """
    if type(ours) is not type(theirs):
        return f"{named(theirs)} in place of {named(ours)}"
    if isinstance(ours, float | complex):
        return "" if close(ours, theirs) else f"{theirs!r} in place of {ours!r}"
    if hasattr(ours, "shape") and hasattr(ours, "dtype"):
        return of_arrays(ours, theirs)
    if isinstance(ours, Mapping):
        if [*ours] != [*theirs] and {*ours} != {*theirs}:
            return f"other keys in {named(ours)}"
        return first(lambda key: difference(ours[key], theirs[key]), [*ours])
    if isinstance(ours, Sequence) and not isinstance(ours, str | bytes | bytearray | range):
        if len(ours) != len(theirs):
            return f"{len(theirs)} elements in place of {len(ours)} in {named(ours)}"
        return first(lambda index: difference(ours[index], theirs[index]), range(len(ours)))
    return by_equality(ours, theirs)


def by_equality(ours: Any, theirs: Any) -> str:
    """How two values of one type differ by `==`, or by `equals` of those that have it."""
    if ours is None:
        same = True
    elif callable(equals := getattr(ours, "equals", None)):
        same = equals(theirs)
    elif type(ours).__eq__ is object.__eq__:  # type: ignore[comparison-overlap]
        raise Unmeasured("failed", f"{named(ours)} has no ==")
    else:
        same = ours == theirs
    try:
        return "" if bool(same) else shown(ours, theirs)
    except Exception as error:
        raise Unmeasured("failed", f"== of {named(ours)} gives no truth") from error


def of_arrays(ours: Any, theirs: Any) -> str:
    """How two arrays or tensors differ, relative to the largest number of base."""
    if tuple(ours.shape) != tuple(theirs.shape) or str(ours.dtype) != str(theirs.dtype):
        was, now = (f"{tuple(a.shape)} {a.dtype}" for a in (ours, theirs))
        return f"{now} in place of {was}" if was != now else ""
    import numpy as np

    a, b = (in_numpy(array, np) for array in (ours, theirs))
    if a.dtype.kind not in "fc":
        return "" if np.array_equal(a, b) else f"other values in an array of {ours.dtype}"
    finite = a[np.isfinite(a)]
    scale = float(np.abs(finite).max()) if finite.size else 0.0
    allowed = scale * max(ROUNDING, rounding(ours))
    if np.allclose(a, b, rtol=0.0, atol=allowed, equal_nan=True):
        return ""
    error = float(np.nanmax(np.abs(a - b))) / scale if scale else math.inf
    return f"an array of {ours.dtype} differs by {error:.2g} of its largest number"


def rounding(array: Any) -> float:
    """How far apart two orders of one sum in this precision may be, relative."""
    name = str(array.dtype).removeprefix("torch.")
    coarse = {"bfloat16": 6e-2, "float16": 1e-2, "float32": 1e-4, "complex64": 1e-4}
    return coarse.get(name, ROUNDING)


def in_numpy(array: Any, np: Any) -> Any:
    """An array of numpy, or of what can become one; bfloat16 has none of its own."""
    if not hasattr(array, "detach"):
        return np.asarray(array)
    plain = array.detach().cpu()
    return np.asarray(plain.double() if plain.is_floating_point() else plain)


def close(ours: complex, theirs: complex) -> bool:
    """Whether two numbers are the same but for rounding; NaN is itself."""
    both_nan = ours != ours and theirs != theirs
    scale = max(abs(ours), abs(theirs))
    return both_nan or ours == theirs or abs(ours - theirs) <= ROUNDING * scale


def first(differs: Callable[[Any], str], places: Sequence[Any]) -> str:
    """The first difference among the elements at these places, with its place."""
    for place in places:
        if what := differs(place):
            return f"{what}, at {place!r}"
    return ""


def shown(ours: Any, theirs: Any) -> str:
    """Both values in words, where they are short."""
    if isinstance(ours, Set) or max(len(repr(ours)), len(repr(theirs))) > 40:
        return f"another value of {named(ours)}"
    return f"{theirs!r} in place of {ours!r}"


def named(value: Any) -> str:
    """The type of a value, in words."""
    return f"a {type(value).__name__}"
