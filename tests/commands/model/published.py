"""Public configurations beside what others count of them: bytes of the context, and parameters.

`tests/data/public_configurations.jsonl` has a line for each file of `data/hf` of
BrendanJamesLynskey/llm-architectures-explained (commit 203a8742; Llama 4 of 7b02ec63) that holds a
configuration: the model, the revision it is pinned to, the numbers of its checkpoint by type, the
fields, and under `reading` how that project reads the layers (`public/data/specs.json`, from which
its `tests/fixtures/arch_fixtures.json` are counted): how many, of which kind, and their sizes.
Dropped are numbers of tokens, positions, activations, training, generation, and encoders.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from attnbench.commands.model.configuration import fields
from attnbench.commands.model.configured_layers import model
from attnbench.commands.model.context import ALL, ContextQuery, rows
from attnbench.commands.model.parameters import parameters
from attnbench.commands.model.plan import AHEAD, QUANTIZED
from attnbench.commands.model.weights import EMBEDDING
from attnbench.errors import UsageError

DATA = Path(__file__).parents[2] / "data" / "public_configurations.jsonl"
LONG = 1 << 17  # tokens, of which each pool and window is full
ITEM = 2  # bytes of a cached number, in all that is compared
FLOAT32 = 4  # bytes of a number of a recurrent state


class Answer(NamedTuple):
    """What is said of a file: bytes of a token and once, parameters, or why it is refused."""

    kind: str = ""
    per_token: float = 0
    once: int = 0
    counted: int = 0
    active: int = 0
    embedding: int = 0
    refused: str = ""
    uncounted: str = ""


class Reading(NamedTuple):
    """Numbers that layers keep: of each token, of windows, of states, of convolutions."""

    tokens: float = 0
    windows: int = 0  # with as many tokens as a window has
    one_token: int = 0  # of each window
    states: int = 0
    inputs: int = 0


def stored() -> list[dict[str, Any]]:
    """The public configurations, in order of their names."""
    return [json.loads(line) for line in DATA.read_text().splitlines()]


def answered(values: dict[str, Any], folder: Path) -> Answer:
    """What is said of a file with these fields."""
    file = folder / "config.json"
    file.write_text(json.dumps(values))
    try:
        found = model(file)
    except UsageError as error:
        return Answer(refused=str(error).removeprefix(f"{str(file)!r}").removeprefix(": ").strip())
    query = ContextQuery(lengths=(LONG,), item_bytes=ITEM)
    row = next(row for row in rows(found.layers, query) if row.kind == ALL)
    said = Answer(found.type, row.per_token, round(row.at[0] - row.per_token * LONG))
    config = fields(file)
    try:
        counted = parameters(config)
    except UsageError as error:
        return said._replace(uncounted=str(error).removeprefix(f"{str(file)!r}: "))
    return said._replace(
        counted=sum(one.numbers for one in counted),
        active=sum(one.active for one in counted),
        embedding=sum(one.numbers for one in counted if one.part == EMBEDDING),
    )


def read(layers: list[list[Any]]) -> Reading | None:
    """How the project reads layers, by its formulas; None for kinds that none here has."""
    total = Reading()
    for many, kind, *sizes in layers:
        found = _numbers(kind, *sizes)
        if found is None:
            return None
        total = Reading(*(old + many * new for old, new in zip(total, found, strict=True)))
    return total


def _numbers(kind: str, *sizes: int) -> Reading | None:
    """The numbers that one layer of a kind keeps."""
    if kind == "attn":
        heads, keys, values, window, index = (*sizes, *(sizes[1], 0, 0)[len(sizes) - 2 :])
        return _kept(heads * (keys + values), window, index)
    if kind == "keys as values":
        return Reading(tokens=sizes[0] * sizes[1])
    if kind == "mla":
        rank, rope, index, window = (*sizes, *(0, 0)[len(sizes) - 2 :])
        return _kept(rank + rope, window, index)
    if kind == "csa":
        width, ratio, index, window = sizes
        pooled = (width + index) / ratio if ratio else 0
        return Reading(tokens=pooled, windows=window * width, one_token=width)
    return _recurrent(kind, *sizes)


def _kept(numbers: int, window: int, index: int) -> Reading:
    if window:
        return Reading(windows=window * numbers, one_token=numbers)
    return Reading(tokens=numbers + index)


def _recurrent(kind: str, *sizes: int) -> Reading | None:
    if kind == "deltanet":
        key_heads, heads, keys, values, kernel = sizes
        channels = 2 * key_heads * keys + heads * values
        return Reading(states=heads * keys * values, inputs=channels * (kernel - 1))
    if kind == "kda":
        heads, width, kernel = sizes
        return Reading(states=heads * width**2, inputs=3 * heads * width * (kernel - 1))
    if kind == "linear":
        return Reading(inputs=sizes[0] * sizes[1] ** 2)  # of the cache's own type
    if kind == "mamba1":
        inner, state, kernel = sizes
        return Reading(states=inner * state, inputs=inner * (kernel - 1))
    if kind == "mamba2":
        heads, width, state, groups, kernel = sizes
        channels = heads * width + 2 * groups * state
        return Reading(states=heads * width * state, inputs=channels * (kernel - 1))
    if kind == "conv":
        return Reading(inputs=sizes[0] * (sizes[1] - 1))
    return None


def by_fixture(reading: Reading) -> float:
    """All bytes of `LONG` tokens as the project's fixtures have them: 2 for every number."""
    return ITEM * (reading.tokens * LONG + reading.windows + reading.states + reading.inputs)


def expected(reading: Reading) -> tuple[float, int]:
    """Bytes of a token and once, where a window holds the token itself and states are float32."""
    once = ITEM * (reading.windows - reading.one_token + reading.inputs) + FLOAT32 * reading.states
    return ITEM * reading.tokens, once


# all bytes of 131,072 tokens (`total_bytes` with `kv_elem_bytes` and `state_elem_bytes` 2.0), as
# they stand in the fixtures
FIXTURES = {
    "Aleph-Alpha/Kolibri-1": 2_726_379_520,
    "moonshotai/Kimi-Linear-48B-A3B-Base": 1_079_410_688,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 830_271_488,
    "nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16": 2_189_997_056,
    "tencent/Hy3-preview": 42_949_672_960,
    "xai-org/grok-2": 34_359_738_368,
}
BESIDE = "a window is of so many tokens before the query, which is the one more"
AS_VALUES = "keys, once they are rotated, are no values any more: both are kept"
POOLS = "the last whole pools of both halves, and their gates, wait for the next one"
# bytes of a token and once where the project reads otherwise, by hand, with the reason
DIFFERENCES: dict[str, tuple[float, int, str]] = {
    "XiaomiMiMo/MiMo-V2-Flash": (9 * 4 * 320 * 2, 39 * 8 * 320 * 2 * 128, BESIDE),
    "XiaomiMiMo/MiMo-V2.5": (9 * 4 * 320 * 2, 39 * 8 * 320 * 2 * 128, BESIDE),
    "XiaomiMiMo/MiMo-V2.6-Flash-RL": (9 * 4 * 320 * 2, 39 * 8 * 320 * 2 * 128, BESIDE),
    "XiaomiMiMo/MiMo-V2.5-Pro": (10 * 8 * 320 * 2, 60 * 8 * 320 * 2 * 128, BESIDE),
    "XiaomiMiMo/MiMo-V2.6-Pro-RL": (10 * 8 * 320 * 2, 60 * 8 * 320 * 2 * 128, BESIDE),
    "Zyphra/ZAYA1-8B": (
        40 * 2 * 128 * 2 * 2,
        40 * ((8 + 2) * 128 * 2 + 2 * 64) * 2,
        "the inputs of two convolutions and half a token's values are kept too",
    ),
    "deepseek-ai/DeepSeek-V4-Flash": (
        21 * 640 / 4 * 2 + 20 * 512 / 128 * 2,
        43 * 127 * 512 * 2 + 21 * 4 * 2 * (512 + 128) * 2,
        POOLS,
    ),
    "deepseek-ai/DeepSeek-V4-Pro": (
        30 * 640 / 4 * 2 + 31 * 512 / 128 * 2,
        61 * 127 * 512 * 2 + 30 * 4 * 2 * (512 + 128) * 2,
        POOLS,
    ),
    "google/gemma-4-12B-it": (8 * 512 * 2 * 2, 40 * 8 * 512 * 1023 * 2, AS_VALUES),
    "google/gemma-4-26B-A4B-it": (5 * 2 * 512 * 2 * 2, 25 * 8 * 512 * 1023 * 2, AS_VALUES),
    "google/gemma-4-31B-it": (10 * 4 * 512 * 2 * 2, 50 * 16 * 512 * 1023 * 2, AS_VALUES),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": (
        12 * 8 * 256 * 2,
        36 * 8 * 256 * 2 * 8191,
        "not read by the project: chunks of 8,192 in three of four layers",
    ),
    "microsoft/Phi-3-mini-4k-instruct": (
        0,
        32 * 32 * 192 * 2 * 2046,
        "the file says a window of 2,047 for all layers, which the project leaves out",
    ),
}


# types whose checkpoints have layers that predict further tokens, of which files say nothing
UNSAID_AHEAD = ("mimo_v2", "mimo_v2_flash", "qwen3_next")


def reasons(values: dict[str, Any], said: Answer) -> Iterator[str]:
    """Why a checkpoint may hold other numbers than the parameters of its text model."""
    text = values.get("text_config", values)
    merged = values | text
    if any(merged.get(name) for name in (*AHEAD, "use_mtp")) or said.kind in UNSAID_AHEAD:
        yield "layers that predict further tokens"
    if "vision_config" in values or "audio_config" in values:
        yield "encoders of images or sounds"
    if any(map(merged.get, QUANTIZED)):
        yield "scales, and several numbers in a byte or a word"
    if masks(values):
        yield "masks of attention, and angles of positions"


def masks(values: dict[str, Any]) -> int:
    """The numbers of the masks and angles that old checkpoints hold for each layer."""
    if values.get("model_type") == "gpt2":
        return int(values["n_layer"] * values["n_ctx"] ** 2)
    if values.get("model_type") == "gpt_neox":
        width = values["hidden_size"] / values["num_attention_heads"] / 4  # that rotates
        of_layer = values["max_position_embeddings"] ** 2 + int(width / 2)
        return int(values["num_hidden_layers"] * of_layer)
    return 0


def corrections(values: dict[str, Any]) -> int:
    """The numbers by which routers correct each expert, which transformers keeps as buffers."""
    text = values.get("text_config", values)
    names = ("n_routed_experts", "num_local_experts", "num_experts")
    experts = next((text[name] for name in names if text.get(name)), 0)
    pattern = text.get("hybrid_override_pattern")
    if pattern:
        return pattern.count("E") * experts
    dense = text.get("first_k_dense_replace", 0) or text.get("num_dense_layers", 0)
    return (text.get("num_hidden_layers", 0) - dense) * experts
