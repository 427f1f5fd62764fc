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
from attnbench.records import messages

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


def keep(value: Any, path: str, tree: str) -> messages.Compared:
    """Write what a function returned to a file. Raises `Unmeasured` where it cannot be kept."""
    text = msgpack.encode(as_node(value, tree))
    if len(text) > LARGEST:
        raise Unmeasured("failed", f"it has more than {LARGEST >> 20} MiB")
    Path(path).write_bytes(text)
    return messages.Compared()


def compare(value: Any, path: str, tree: str) -> messages.Compared:
    """What a function returned against what is kept in the file.

    `what` is how they differ, with an `error` of 1 where they do and an `allowed` one of 0. Raises
    `Unmeasured` where they cannot be compared.
    """
    try:
        base = msgpack.decode(Path(path).read_bytes(), type=Node)
    except (OSError, ValidationError, ValueError) as error:
        raise Unmeasured("failed", f"base's cannot be read here: {one_line(error)}") from error
    change = difference(base, as_node(value, tree))
    return messages.Compared(what=change, error=float(bool(change)))


def as_node(value: Any, tree: str) -> Node:
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
        return table_as_fields(value, tree)
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


def table_as_fields(value: Any, tree: str) -> Fields:
    """A table with its columns and index, or one column, as plain data."""
    columns = value.columns if hasattr(value, "columns") else [getattr(value, "name", None)]
    is_column = not hasattr(value, "columns")
    parts: dict[Any, Any] = {
        number: (name, column_of(value if is_column else value[name]))
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
        return table_as_fields(array, tree)
    import numpy as np

    try:
        numbers = in_numpy(array, np)
        if numbers.dtype.kind == "O":
            shape = Exact("shape", str(numbers.shape))
            return Elements(kind, (shape, *(node(item, tree) for item in numbers.ravel().tolist())))
        data = numbers.tobytes()
    except (TypeError, ValueError, RuntimeError) as error:
        raise Unmeasured("failed", f"its {kind} cannot be copied: {one_line(error)}") from error
    return Array(kind, str(array.dtype), numbers.dtype.str, numbers.shape, data)


def in_numpy(array: Any, np: Any) -> Any:
    """An array of numpy, or of what can become one; 16 bits of a tensor become 32."""
    if not hasattr(array, "detach"):
        return np.asarray(array)
    tensor = array.detach().cpu()
    tensor = tensor.to_dense() if str(tensor.layout) != "torch.strided" else tensor
    torch = sys.modules["torch"]
    small = tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64)
    return np.asarray(tensor.float() if small else tensor.resolve_conj().resolve_neg())


def difference(base: Node, head: Node) -> str:
    """How a value of head, `theirs`, differs from base's, in words; empty if it does not."""
    if type(base) is not type(head) or base.kind != head.kind:
        return f"{type_in_words(head)} in place of {type_in_words(base)}"
    match base, head:
        case Number(), Number():
            return "" if is_close(base, head) else f"{head.text} in place of {base.text}"
        case Array(), Array():
            return difference_of_arrays(base, head)
        case Fields(), Fields():
            return difference_of_fields(base, head)
        case Elements(), Elements():
            return difference_of_rows(base, head)
        case _:
            return "" if base == head else replacement_text(base, head)


def difference_of_fields(base: Fields, head: Fields) -> str:
    """How two mappings, dataclasses or tables differ."""
    if base.keys != head.keys:
        return f"other keys in {type_in_words(base)}"
    return first_difference(zip(base.keys, base.values, head.values, strict=True))


def difference_of_rows(base: Elements, head: Elements) -> str:
    """How two sequences differ."""
    if len(base.items) != len(head.items):
        before = len(base.items)
        after = len(head.items)
        return f"{after} elements in place of {before} in {type_in_words(base)}"
    places = (Exact("int", str(number)) for number in range(len(base.items)))
    return first_difference(zip(places, base.items, head.items, strict=True))


def first_difference(places: Iterator[tuple[Node, Node, Node]]) -> str:
    """The first difference among elements: each has its place, base's value and head's."""
    for place, base, head in places:
        if change := difference(base, head):
            return f"{change}, at {short_text(place)}"
    return ""


def difference_of_arrays(base: Array, head: Array) -> str:
    """How two arrays or tensors differ, relative to the largest number of base."""
    import numpy as np

    before = f"{base.shape} {base.dtype}"
    after = f"{head.shape} {head.dtype}"
    if before != after:
        return f"{after} in place of {before}"
    a, b = (np.frombuffer(array.data, array.code) for array in (base, head))
    if a.dtype.kind not in "fc":
        return "" if base.data == head.data else f"other values in an array of {base.dtype}"
    finite = a[np.isfinite(a)]
    scale = float(np.abs(finite).max()) if finite.size else 0.0
    allowed = scale * max(ROUNDING, rounding(base.dtype))
    if np.allclose(a, b, rtol=0.0, atol=allowed, equal_nan=True):
        return ""
    error = float(np.nanmax(np.abs(a - b))) / scale if scale else math.inf
    return f"an array of {base.dtype} differs by {error:.2g} of its largest number"


def rounding(dtype: str) -> float:
    """How far apart two orders of one sum in this precision may be, relative."""
    coarse = {"bfloat16": 6e-2, "float16": 1e-2, "float32": 1e-4, "complex64": 1e-4}
    return coarse.get(dtype.removeprefix("torch."), ROUNDING)


def is_close(base: Number, head: Number) -> bool:
    """Whether two numbers are the same but for rounding; NaN is itself."""
    a = complex(base.real, base.imaginary)
    b = complex(head.real, head.imaginary)
    both_nan = a != a and b != b
    return both_nan or a == b or abs(a - b) <= ROUNDING * max(abs(a), abs(b))


def replacement_text(base: Node, head: Node) -> str:
    """Both values in words, where they are short."""
    before = short_text(base)
    after = short_text(head)
    if not before or not after or max(len(before), len(after)) > LONGEST:
        return f"another value of {type_in_words(base)}"
    return f"{after} in place of {before}"


def short_text(value: Node) -> str:
    """The text of a value that has one, as Python writes it; else nothing."""
    if isinstance(value, Exact):
        return repr(value.text) if value.kind == "str" else value.text
    return value.text if isinstance(value, Number) else ""


def type_in_words(value: Node) -> str:
    """The type of a value, in words."""
    return f"a {value.kind}"
