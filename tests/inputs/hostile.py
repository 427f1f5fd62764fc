"""Stored sweeps and baselines in which every text means harm to whoever shows it."""

import random
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnbench.records.storage import schema
from attnbench.records.storage.journal import FILE

DATA = Path(__file__).parents[1] / "data"

NASTY = (
    *("../../x", "/etc/passwd", "..\\..\\x", "a\0b", "x" * 300, "\udcff", ""),
    *("\x1b[2J\x1b[31m", "\x9b31m", "\x1b]8;;http://x.example\x07link\x1b]8;;\x07", "\x1b]0;t\x07"),
    *("\x1b]52;c;ZXZpbA==\x07", "\x07\x08\x7f", "\u202egnp.exe", "\u2066a\u2069", "\ufeff\u200b"),
    *("one\ntwo", "one\r\ntwo", "one\u2028two\u0085", "\rover"),
    *("<script>alert(1)</script>", '" onload="alert(1)', "' style='x", "</style></title><b>"),
    *("<img src=x onerror=alert(1)>", "javascript:alert(1)", "&lt;b&gt;"),
    *("<!--", "]]>", "<![CDATA["),
    *("\\input{/etc/passwd}", "\\write18{id}", "%", "$x$"),
    *("\\def\\x{", "}{", "^^5cinput", "#1 & _ ~"),
    *("a|b", "`code`", "[x](http://x.example)", "![x](http://x.example)", "[x]: http://x.example"),
    *("http://x.example", "www.x.example", "# head", "- item", "1. item", "> quote", "***", "~~~"),
    *("=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)"),
    *("\t=1+1", "\r=1+1", " =1", "\uff1d1+1", ";=1"),
    *("[bold]", "[/]", "[link=http://x.example]x[/link]", "[red", ":warning:"),
    *("::error::x", "%0A::error::x", "::set-output name=x::y", "##[error]x", "::stop-commands::x"),
)

# words of which only some are taken, and the names that runs have for cases
FIXED = (
    *("level", "mode", "modes", "family", "causality", "outcome", "part", "case", "id", "kind"),
    "dtype",
)


# stored sweeps, of a CPU with cases that ran out of memory and of a GPU, and a length of each
SWEEPS = (("small", 512), ("gpu", 32))


def stored(folder: Path, seed: int) -> None:
    """A stored sweep in the folder whose texts all begin with one of the nasty ones."""
    name, _ = SWEEPS[seed]
    shutil.copytree(DATA / name, folder)
    file = folder / FILE
    entries = [schema.unseal(line) for line in file.read_bytes().splitlines()]
    spoiled = [replace(entry, data=spoil(entry.data, str(seed))) for entry in entries]
    made = b"".join(map(schema.seal, spoiled))
    # and lines that say in their own words what is wrong
    odd = schema.JournalLine(NASTY[seed] + "kind", NASTY[0], {NASTY[0]: list(NASTY)})
    file.write_bytes(made + schema.seal(odd) + NASTY[0].encode() + b"\n")


def spoil(data: Any, seed: str) -> Any:
    """The data with harm in front of each text; the same text always gets the same."""
    match data:
        case str():
            return random.Random(seed + data).choice(NASTY) + data
        case Mapping():
            # the keys are words of a mechanism or machine, not the names of fields
            free = bool({"changed", "backend", "clock", "bias", "operators"} & set(data))
            return {
                spoil(key, seed) if free else key: value if key in FIXED else spoil(value, seed)
                for key, value in data.items()
            }
        case list() | tuple():
            return [spoil(value, seed) for value in data]
    return data
