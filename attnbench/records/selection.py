"""A selection: a mechanism as `--models` names it, and the layers of a stack.

name[:form][[option=value,...]]
stack([times*]layer[+[times*]layer...])       each layer a selection
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import isfinite
from typing import Self

from attnbench.errors import UsageError
from attnbench.records.bounds import Option

SELECTION = re.compile(
    r"(?P<name>stack\(.*\)|[^:\[\]]+|.*\.py:\w+)(?::(?P<form>[\w*?]+))?(?:\[(?P<options>.*)\])?"
)
# functions of a file as forms of a mechanism
CLAIM = re.compile(r"(?P<name>[a-z]\w*:.+\.py):(?P<form>[\w*?]+)")
STACK = re.compile(r"stack\((.*)\)")
LAYER = re.compile(r"(?:(\d{1,6})\s*\*)?\s*(.+)")
MOST = 1000  # layers of a stack


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A mechanism as `--models` names it; without a form, the default of each workload.

    Before groups and patterns are expanded, `name` and `form` may hold wildcards.
    """

    name: str
    form: str | None = None
    options: tuple[tuple[str, Option], ...] = ()

    def __str__(self) -> str:
        form = f":{self.form}" if self.form else ""
        return self.name + form + (f"[{options_text(self.options)}]" if self.options else "")

    @classmethod
    def read(cls, text: str) -> Self:
        """`synth*`, `transformer:eager`, `linformer[rank=64]`, `file.py:NAME`, `@fig2`, `stack(…)`.

        Raises `UsageError`.
        """
        match = SELECTION.fullmatch(text)
        if match is None:
            raise UsageError(
                f"--models {text!r} is not a name, name:form, name[option=value] or @group"
            )
        name = match["name"]
        form = match["form"]
        if claim := CLAIM.fullmatch(name):
            name = claim["name"]
            form = claim["form"]
        elif name.endswith(".py") and form:
            name = f"{name}:{form}"
            form = None
        if name.endswith(".py") and not form:
            raise UsageError(f"--models {text!r} names a file alone; write {name}:NAME")
        pairs = parts(match["options"], "--models") if match["options"] else []
        options = tuple(_option(pair, text) for pair in pairs)
        if len({option for option, _ in options}) < len(options):
            raise UsageError(f"--models {text!r} gives an option twice")
        return cls(name=name, form=form, options=options)


def parts(text: str, option: str, mark: str = ",") -> list[str]:
    """The parts of a list, split at marks outside brackets. Raises `UsageError` if one is empty."""
    depth = 0
    cuts = [-1]
    for index, letter in enumerate(text):
        depth = max(0, depth + (letter in "([") - (letter in ")]"))
        if letter == mark and not depth:
            cuts.append(index)
    stripped = [text[a + 1 : b].strip() for a, b in pairwise((*cuts, len(text)))]
    if not all(stripped):
        raise UsageError(f"{option} {text!r} has an empty part")
    return stripped


def layers(name: str) -> tuple[Selection, ...]:
    """The layers of the stack of this name, in order; none of another name.

    Raises `UsageError`.
    """
    if (match := STACK.fullmatch(name)) is None:
        return ()
    if not match[1].strip():
        raise UsageError(f"--models {name!r} has no layers; write stack(3*NAME+NAME)")
    selections: list[Selection] = []
    for part in parts(match[1], f"--models {name!r}:", "+"):
        match = LAYER.fullmatch(part)
        assert match is not None, "a part is not empty"
        times = int(match[1] or 1)
        chosen = Selection.read(match[2])
        if chosen.name.startswith("stack("):
            raise UsageError(f"--models {name!r} has a stack as a layer; write its layers")
        if not 1 <= times <= MOST - len(selections):
            raise UsageError(f"--models {name!r} has a layer 0 times, or has over {MOST} of them")
        selections += [chosen] * times
    return tuple(selections)


def stack_of(layers: Iterable[Selection]) -> str:
    """The name of the stack of these layers: `stack(3*gated_delta_net+grouped_query)`."""
    runs = [(len([*same]), layer) for layer, same in groupby(layers)]
    return f"stack({'+'.join(f'{n}*{layer}' if n > 1 else str(layer) for n, layer in runs)})"


def mechanisms(name: str) -> tuple[str, ...]:
    """The mechanisms of the layers of a stack, each once, or the one of this name."""
    return tuple(dict.fromkeys(layer.name for layer in layers(name))) or (name,)


def options_text(options: Iterable[tuple[str, Option]]) -> str:
    """`rank=64,share=True`."""
    return ",".join(f"{name}={value}" for name, value in options)


def option_value(text: str) -> Option:
    """`true`, `false`, `none`, an integer, a number, or the text itself."""
    words: dict[str, Option] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return text


def _option(pair: str, text: str) -> tuple[str, Option]:
    name, equals, value = (piece.strip() for piece in pair.partition("="))
    if not (equals and name and value):
        raise UsageError(f"--models {text!r}: {pair!r} is not of the form option=value")
    number = option_value(value)
    if isinstance(number, float) and not isfinite(number):
        raise UsageError(f"--models {text!r}: {name} must be finite")
    return name, number
