"""Sizes from papers and models: columns of Fastformer's Table 9, and groups of mechanisms.

Sizes that Table 9 does not give are chosen here, the same for every column: mechanisms that only
the survey describes get sizes near those of the Long Range Arena. A preset named after a model has
the width and heads of its layers (Llama 3 8B; the recurrent ones of Qwen3-Next 80B-A3B, with twice
as many heads of values, and the output gate of its attention), two layers for all of them, since
each costs the same, and otherwise the sizes of the column `pubmed`. `gpu` has those in which
kernels are compared on GPUs: heads of 128 numbers in bfloat16, and 16,384 tokens a batch.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from attnbench.errors import UnknownMechanism, UsageError
from attnbench.mechanisms.catalogue.declared import file_with_a_comma, with_module
from attnbench.mechanisms.catalogue.registry import (
    FEEDS,
    decodes,
    names,
    unknown_name_message,
)
from attnbench.records import Option, Selection, selection
from attnbench.records.selection import layers, stack_of

GROUPS: Mapping[str, str] = MappingProxyType(
    {
        # the transformer in the fused form that users run, and as the paper ran it
        "@fig2": """
            transformer transformer:eager longformer bigbird linformer linear_transformer
            poolingformer fastformer
        """,
        "@table5": "transformer sparse_transformer longformer bigbird smart_bird",
        "@survey": """
            memory_compressed image_transformer set_transformer transformer_xl sparse_transformer
            reformer routing_transformer axial compressive_transformer sinkhorn longformer etc
            synthesizer performer linformer linear_transformer bigbird
        """,
        "@modern": """
            grouped_query sliding_window latent fnet retention gated_delta_net mamba2 kimi_delta
            gated_linear lightning rwkv7 forgetting differential indexed moba native_sparse
        """,
        "@decode": "",  # read from the mechanisms' files
        "@all": "",
    }
)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A column of Table 9, or a model, with the options of mechanisms by their names."""

    mechanisms: Mapping[str, Mapping[str, Option]]
    layers: int
    width: int = 256
    heads: int = 16
    dtype: str = "float32"
    batch_tokens: int | None = None  # c; None: the device's

    def options(self, mechanism: str) -> Mapping[str, Option]:
        """The options of a mechanism in this column; empty if it has none."""
        return self.mechanisms.get(mechanism, {})


def column(layers: int, tokens: int, pool_window: int, block: int, rank: int) -> Preset:
    """A column of Table 9; of Longformer and BigBird, `tokens` are global, random and a window."""
    table: dict[str, dict[str, Option]] = {
        "longformer": {"window": tokens, "global_tokens": tokens},
        "bigbird": {"block": block, "global_tokens": tokens, "random_tokens": tokens},
        "poolingformer": {"window": tokens, "pool_window": pool_window},
        "linformer": {"rank": rank},
        # chosen here: not in Table 9
        "sparse_transformer": {"stride": None},
        "transformer_xl": {"segment": 128, "memory": 128},
        "compressive_transformer": {"segment": 128, "memory": 128, "compressed": 128},
        "reformer": {"rounds": 2},
        "etc": {"global_tokens": 16},
        "performer": {"features": 64},
    }
    return Preset(layers=layers, mechanisms=table)


PUBMED = column(layers=2, tokens=64, pool_window=256, block=32, rank=64)


def model(width: int, heads: int, **mechanisms: Mapping[str, Option]) -> Preset:
    """The sizes of a model's layers, and otherwise those of `pubmed`."""
    return replace(PUBMED, width=width, heads=heads, mechanisms={**PUBMED.mechanisms, **mechanisms})


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "amazon": column(layers=2, tokens=8, pool_window=64, block=4, rank=16),
        "imdb": column(layers=2, tokens=8, pool_window=64, block=4, rank=16),
        "mind-classification": column(layers=2, tokens=16, pool_window=256, block=8, rank=16),
        "mind-recommendation": column(layers=1, tokens=8, pool_window=64, block=4, rank=16),
        "cnn-dailymail": column(layers=4, tokens=64, pool_window=256, block=32, rank=64),
        "pubmed": PUBMED,
        "gpu": replace(PUBMED, width=2048, heads=16, dtype="bfloat16", batch_tokens=1 << 14),
        "llama": model(4096, 32, grouped_query={"kv_heads": 8}, sliding_window={"kv_heads": 8}),
        "qwen-next": model(
            2048,
            16,
            grouped_query={"kv_heads": 2, "gate": True},
            sliding_window={"kv_heads": 2},
            gated_delta_net={"value_heads": 32},
        ),
    }
)


def preset(name: str) -> Preset:
    """A column of Table 9 or a model, by name. Raises `UsageError`."""
    if name not in PRESETS:
        raise UsageError(unknown_name_message(name, tuple(PRESETS), "preset"))
    return PRESETS[name]


def group(name: str) -> tuple[str, ...]:
    """The members of a group such as `@fig2` or `@all`. Raises `UsageError`."""
    if name not in GROUPS:
        raise UsageError(unknown_name_message(name, tuple(GROUPS), "group"))
    if name == "@decode":
        return tuple(filter(decodes, names()))
    return tuple(GROUPS[name].split()) or names()


def expand(text: str, column: Preset | None = None) -> tuple[Selection, ...]:
    """One selection for each mechanism that a part of `--models` names.

    A file alone, `mine.py`, means the one module that it has.
    The layers of a stack get the options that they have in the column. Raises `UnknownMechanism`
    with the nearest names, or `UsageError`.
    """
    chosen = Selection.read(with_module(text))
    if own := layers(chosen.name):
        each = {layer: expand(str(layer)) for layer in dict.fromkeys(own)}
        found = [_filled(part, column) for layer in own for part in each[layer]]
        return (replace(chosen, name=stack_of(found)),)
    if chosen.name.startswith("@"):
        members = map(Selection.read, group(chosen.name))
        return tuple(replace(chosen, name=m.name, form=chosen.form or m.form) for m in members)
    kernel = chosen.name.endswith(".py")
    mechanism = chosen.name.partition(":")[0] if kernel else chosen.name
    if ".py:" in chosen.name or mechanism in FEEDS or (kernel and mechanism in names()):
        matches: tuple[str, ...] = (chosen.name,)
    else:
        matches = tuple(known for known in names() if fnmatchcase(known, mechanism) and not kernel)
    if not matches and Path(f"{mechanism}.py").is_file():
        raise UnknownMechanism(f"unknown mechanism {mechanism!r}; the file is {mechanism}.py")
    if not matches:
        raise UnknownMechanism(unknown_name_message(mechanism, names()))
    return tuple(replace(chosen, name=match) for match in matches)


def listed(text: str, option: str) -> tuple[str, ...]:
    """The parts of a list of mechanisms; a file alone means the one module that it has.

    Raises `UsageError` at a misspelt name, at a file with none or several modules, and at one whose
    path has a comma, which divides the list.
    """
    try:
        selections = tuple(map(with_module, selection.parts(text, option)))
        for part in selections:
            expand(part)
    except UsageError as error:
        refuse_comma(text, option, error)
        raise
    if not all(os.path.isfile(path) for path in files_of(selections)):
        refuse_comma(text, option)
    return selections


def files_of(selections: Iterable[str]) -> Iterator[str]:
    """The paths of files among parts of `--models`: of modules, and of kernels of a mechanism."""
    for part in selections:
        name = Selection.read(part).name
        if ".py:" in name and not layers(name):
            yield name.rpartition(":")[0]
        elif name.endswith(".py"):
            yield name.partition(":")[2]


def refuse_comma(text: str, option: str, cause: UsageError | None = None) -> None:
    """Raises `UsageError` where a list of mechanisms names a file whose path has a comma."""
    if file := file_with_a_comma(text):
        raise UsageError(
            f"{option}: {file!r} has a comma in its path, which divides mechanisms; rename it, or"
            " give a link to it"
        ) from cause


def _filled(chosen: Selection, column: Preset | None) -> Selection:
    """The selection with the options of the column that it does not give."""
    options = {**(column.options(chosen.name) if column else {}), **dict(chosen.options)}
    return replace(chosen, options=tuple(sorted(options.items())))
