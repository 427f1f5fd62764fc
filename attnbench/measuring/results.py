"""Whether a function returns the same on both sides: by `==`, and numbers within rounding errors.

Base's process writes what it returned to a file, and head's reads it. A file holds plain data
alone: numbers, texts, bytes, and how they are nested, with the names of types. Reading it builds no
object of a user's class and runs no code. So equality is asked of what an object consists of, which
is known for containers, dataclasses, arrays, tables and some types of the standard library; what is
none of these is not compared.
"""

import dataclasses
import enum
import math
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Any, TypeAlias
from uuid import UUID

from msgspec import Struct, ValidationError, msgpack

from attnbench.errors import one_line
from attnbench.measuring.server import Unmeasured
from attnbench.records.messages import Compared

LARGEST = 256 << 20  # bytes of what is kept
ROUNDING = 1e-8  # of a number in double precision, relative; sums in another order err far less
LONGEST = 40  # characters of a value that is shown
# types that a text tells in full, beside str
TOLD = (int, Decimal, Fraction, PurePath, UUID, date, range, time, timedelta, type(None), type(...))
TABLES = frozenset({"pandas", "polars"})  # packages whose tables have `to_dict`


class Exact(Struct, frozen=True, tag="exact"):
    """A value that its text tells in full, such as a number or a text."""

    kind: str
    text: str


class Number(Struct, frozen=True, tag="number"):
    """A number with rounding errors; `imaginary` is 0 unless it is complex."""

    kind: str
    text: str
    real: float
    imaginary: float


class Binary(Struct, frozen=True, tag="bytes"):
    """Bytes."""

    kind: str
    data: bytes


class Array(Struct, frozen=True, tag="array"):
    """An array or tensor: the bytes of its numbers, which numpy has as type `code`.

    `dtype` is the type of the original.
    """

    kind: str
    dtype: str
    code: str
    shape: tuple[int, ...]
    data: bytes


class Elements(Struct, frozen=True, tag="row"):
    """Elements in order."""

    kind: str
    items: tuple["Node", ...]


class Bag(Struct, frozen=True, tag="bag"):
    """Elements of a set, by the bytes that tell each."""

    kind: str
    members: frozenset[bytes]


class Fields(Struct, frozen=True, tag="fields"):
    """Values by name or key: of a mapping, a dataclass or a table."""

    kind: str
    keys: tuple["Node", ...]
    values: tuple["Node", ...]


Node: TypeAlias = Exact | Number | Binary | Array | Elements | Bag | Fields


def keep(value: Any, path: str, tree: str) -> Compared:
    """Write what a function returned to a file. Raises `Unmeasured` where it cannot be kept."""
    text = msgpack.encode(told(value, tree))
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
        kept = msgpack.decode(Path(path).read_bytes(), type=Node)
    except (OSError, ValidationError, ValueError) as error:
        raise Unmeasured("failed", f"base's cannot be read here: {one_line(error)}") from error
    what = difference(kept, told(value, tree))
    return Compared(what=what, error=float(bool(what)))


def told(value: Any, tree: str) -> Node:
    """A value as plain data, without the place of the source tree in its texts.

    Raises `Unmeasured` where it is or holds an object of which nothing tells what it consists of.
    """
    try:
        return node(value, tree)
    except RecursionError as error:
        raise Unmeasured("failed", "it is nested too deeply, or within itself") from error


def node(value: Any, tree: str) -> Node:
    """A value as plain data. Raises `Unmeasured`, or `RecursionError`."""
    kind = type(value).__qualname__
    if isinstance(value, enum.Enum):
        return Exact(kind, value.name or repr(value.value))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return array_node(value, tree)
    if isinstance(value, float | complex):
        return Number(kind, repr(value), value.real, value.imag)
    if isinstance(value, str):
        return Exact(kind, str(value).replace(tree, ""))
    if isinstance(value, TOLD):
        return Exact(kind, repr(value).replace(tree, ""))
    if isinstance(value, bytes | bytearray | memoryview):
        return Binary(kind, bytes(value))
    return container(value, tree)


def container(value: Any, tree: str) -> Node:
    """What holds other values, as plain data. Raises `Unmeasured`, or `RecursionError`."""
    kind = type(value).__qualname__
    if isinstance(value, Mapping):
        return fields(kind, value, tree)
    if isinstance(value, Set):
        return Bag(kind, frozenset(msgpack.encode(node(member, tree)) for member in value))
    if isinstance(value, Sequence):
        return Elements(kind, tuple(node(item, tree) for item in value))
    if dataclasses.is_dataclass(value) and compares_fields(type(value)):
        compared = [field.name for field in dataclasses.fields(value) if field.compare]
        return fields(kind, {name: getattr(value, name) for name in compared}, tree)
    if is_table(value):
        return table(value, tree)
    raise Unmeasured(
        "failed", f"it returns or holds a {kind}, which is no plain data to send to another process"
    )


def fields(kind: str, values: Mapping[Any, Any], tree: str) -> Fields:
    """Values by key, as plain data; the order of keys is no part of it."""
    pairs = [(node(key, tree), node(value, tree)) for key, value in values.items()]
    pairs.sort(key=lambda pair: msgpack.encode(pair[0]))
    return Fields(kind, tuple(key for key, _ in pairs), tuple(value for _, value in pairs))


def compares_fields(kind: type) -> bool:
    """Whether `==` of a dataclass is the one that Python wrote for it."""
    equality: Any = kind.__eq__
    code = getattr(getattr(equality, "__wrapped__", equality), "__code__", None)
    return code is not None and code.co_filename.startswith("<")


def is_table(value: Any) -> bool:
    """Whether a value is a table or a column of a package that is known."""
    package = type(value).__module__.partition(".")[0]
    return package in TABLES and hasattr(value, "shape")


def table(value: Any, tree: str) -> Fields:
    """A table with its columns and index, or one column, as plain data."""
    columns = value.columns if hasattr(value, "columns") else [getattr(value, "name", None)]
    one = not hasattr(value, "columns")
    parts: dict[Any, Any] = {
        number: (name, column_of(value if one else value[name]))
        for number, name in enumerate(columns)
    }
    if hasattr(value, "index") and not callable(value.index):
        parts[-1] = ("index", list(value.index))
    return fields(type(value).__qualname__, parts, tree)


def column_of(column: Any) -> Any:
    """The elements of a column: an array of numbers, or a list of whatever they are."""
    elements = column.to_numpy()
    return elements if elements.dtype.kind in "fciubmM" else list(elements)


def array_node(array: Any, tree: str) -> Node:
    """An array or tensor as plain data. Raises `Unmeasured`."""
    kind = type(array).__qualname__
    if is_table(array):
        return table(array, tree)
    import numpy as np

    try:
        plain = in_numpy(array, np)
        if plain.dtype.kind == "O":
            shape = Exact("shape", str(plain.shape))
            return Elements(kind, (shape, *(node(item, tree) for item in plain.ravel().tolist())))
        data = plain.tobytes()
    except (TypeError, ValueError, RuntimeError) as error:
        raise Unmeasured("failed", f"its {kind} cannot be copied: {one_line(error)}") from error
    return Array(kind, str(array.dtype), plain.dtype.str, plain.shape, data)


def in_numpy(array: Any, np: Any) -> Any:
    """An array of numpy, or of what can become one; 16 bits of a tensor become 32."""
    if not hasattr(array, "detach"):
        return np.asarray(array)
    plain = array.detach().cpu()
    plain = plain.to_dense() if str(plain.layout) != "torch.strided" else plain
    torch = sys.modules["torch"]
    small = plain.is_floating_point() and plain.dtype not in (torch.float32, torch.float64)
    return np.asarray(plain.float() if small else plain.resolve_conj().resolve_neg())


def difference(ours: Node, theirs: Node) -> str:
    """How a value of head, `theirs`, differs from base's, in words; empty if it does not."""
    if type(ours) is not type(theirs) or ours.kind != theirs.kind:
        return f"{named(theirs)} in place of {named(ours)}"
    match ours, theirs:
        case Number(), Number():
            return "" if close(ours, theirs) else f"{theirs.text} in place of {ours.text}"
        case Array(), Array():
            return of_arrays(ours, theirs)
        case Fields(), Fields():
            return of_fields(ours, theirs)
        case Elements(), Elements():
            return of_rows(ours, theirs)
        case _:
            return "" if ours == theirs else shown(ours, theirs)


def of_fields(ours: Fields, theirs: Fields) -> str:
    """How two mappings, dataclasses or tables differ."""
    if ours.keys != theirs.keys:
        return f"other keys in {named(ours)}"
    return first(zip(ours.keys, ours.values, theirs.values, strict=True))


def of_rows(ours: Elements, theirs: Elements) -> str:
    """How two sequences differ."""
    if len(ours.items) != len(theirs.items):
        was = len(ours.items)
        now = len(theirs.items)
        return f"{now} elements in place of {was} in {named(ours)}"
    places = (Exact("int", str(number)) for number in range(len(ours.items)))
    return first(zip(places, ours.items, theirs.items, strict=True))


def first(places: Iterator[tuple[Node, Node, Node]]) -> str:
    """The first difference among elements: each has its place, base's value and head's."""
    for place, ours, theirs in places:
        if what := difference(ours, theirs):
            return f"{what}, at {brief(place)}"
    return ""


def of_arrays(ours: Array, theirs: Array) -> str:
    """How two arrays or tensors differ, relative to the largest number of base."""
    import numpy as np

    was = f"{ours.shape} {ours.dtype}"
    now = f"{theirs.shape} {theirs.dtype}"
    if was != now:
        return f"{now} in place of {was}"
    a, b = (np.frombuffer(one.data, one.code) for one in (ours, theirs))
    if a.dtype.kind not in "fc":
        return "" if ours.data == theirs.data else f"other values in an array of {ours.dtype}"
    finite = a[np.isfinite(a)]
    scale = float(np.abs(finite).max()) if finite.size else 0.0
    allowed = scale * max(ROUNDING, rounding(ours.dtype))
    if np.allclose(a, b, rtol=0.0, atol=allowed, equal_nan=True):
        return ""
    error = float(np.nanmax(np.abs(a - b))) / scale if scale else math.inf
    return f"an array of {ours.dtype} differs by {error:.2g} of its largest number"


def rounding(dtype: str) -> float:
    """How far apart two orders of one sum in this precision may be, relative."""
    coarse = {"bfloat16": 6e-2, "float16": 1e-2, "float32": 1e-4, "complex64": 1e-4}
    return coarse.get(dtype.removeprefix("torch."), ROUNDING)


def close(ours: Number, theirs: Number) -> bool:
    """Whether two numbers are the same but for rounding; NaN is itself."""
    a = complex(ours.real, ours.imaginary)
    b = complex(theirs.real, theirs.imaginary)
    both_nan = a != a and b != b
    return both_nan or a == b or abs(a - b) <= ROUNDING * max(abs(a), abs(b))


def shown(ours: Node, theirs: Node) -> str:
    """Both values in words, where they are short."""
    was = brief(ours)
    now = brief(theirs)
    if not was or not now or max(len(was), len(now)) > LONGEST:
        return f"another value of {named(ours)}"
    return f"{now} in place of {was}"


def brief(value: Node) -> str:
    """The text of a value that has one, as Python writes it; else nothing."""
    if isinstance(value, Exact):
        return repr(value.text) if value.kind == "str" else value.text
    return value.text if isinstance(value, Number) else ""


def named(value: Node) -> str:
    """The type of a value, in words."""
    return f"a {value.kind}"
