"""What publishers, users and calculators state of models, with where it was read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parents[2] / "data" / "configurations"
GIB = 1 << 30
MIB = 1 << 20
QUOTED = "README of the model, as quoted in data/curation of llm-architectures-explained"


class Report(NamedTuple):
    """Parameters that a publisher states, in thousands of millions.

    tables: how many of embedding and head its active ones leave out.
    off: the share by which the count may differ, beside the rounding of what is stated.
    """

    repo: str
    total: float
    active: float | None
    tables: int
    source: str
    off: float = 0.01


class Stated(NamedTuple):
    """Bytes that somebody states or logs, in a unit; `ours` from bytes of a token and once."""

    repo: str
    stated: float
    unit: str
    ours: Callable[[float, int], float]
    why: str
    source: str
    off: float = 0.005
    factor: float = 1.0  # by which what is stated is known to be another


class Calculator(NamedTuple):
    """A public calculator's bytes of a token, from the fields of a file."""

    source: str
    per_token: Callable[[dict[str, Any]], float]
    why: str


DEEPSEEK = "[README](https://github.com/deepseek-ai/DeepSeek-V3) of DeepSeek-V3"
REPORTS = (
    Report("deepseek-ai/DeepSeek-V3", 671, 37, 1, f"{DEEPSEEK}; 685 on the Hub with 14 of MTP"),
    Report("deepseek-ai/DeepSeek-V2", 236, 21, 1, f"{DEEPSEEK}, table of results"),
    Report("Qwen/Qwen2.5-72B", 72.7, None, 0, QUOTED),
    Report(
        "openai/gpt-oss-120b",
        116.8,
        5.1,
        1,
        "[wikibench.ai](https://wikibench.ai/models/gpt-oss-120b/)",
    ),
    Report("openai/gpt-oss-20b", 21, 3.6, 1, QUOTED),
    Report(
        "mistralai/Mixtral-8x7B-v0.1",
        47,
        13,
        0,
        "paper, quoted by [simonwillison.net](https://simonwillison.net/2024/Jan/9/mixtral-of-experts/)",
    ),
    Report(
        "MiniMaxAI/MiniMax-Text-01",
        456,
        45.9,
        2,
        "[minimax01.com](https://minimax01.com/en/blog/minimax-text-01-introduction)",
    ),
    Report(
        "moonshotai/Kimi-K2-Base",
        1000,
        32,
        1,
        "[Helicone](https://github.com/Helicone/helicone), packages/cost/models/authors/moonshotai",
        0.03,
    ),
    Report("Qwen/Qwen3-235B-A22B", 235, 22, 0, QUOTED),
    Report("Qwen/Qwen3-30B-A3B", 30.5, 3.3, 0, QUOTED, 0.02),
    Report("Qwen/Qwen3.5-397B-A17B", 397, 17, 0, QUOTED, 0.03),
    Report("zai-org/GLM-4.5", 355, 32, 2, QUOTED),
    Report("zai-org/GLM-5", 744, 40, 2, QUOTED),
    Report("deepseek-ai/DeepSeek-V4-Flash", 284, None, 0, QUOTED),
    Report("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", 550, 55, 1, QUOTED),
    Report("ai21labs/Jamba-v0.1", 52, 12, 0, QUOTED),
    Report("google/gemma-4-31B-it", 30.7, None, 0, QUOTED),
)

LLAMA = {"model_type": "llama", "vocab_size": 128_256, "num_key_value_heads": 8}
# sizes of the paper (arXiv 2407.21783, table 3)
LLAMA_3 = {
    f"meta-llama/Llama-3.1-{name}": LLAMA
    | {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": inner,
    }
    for name, layers, width, heads, inner in (
        ("8B", 32, 4_096, 32, 14_336),
        ("70B", 80, 8_192, 64, 28_672),
        ("405B", 126, 16_384, 128, 53_248),
    )
}


def hybrid() -> dict[str, Any]:
    """Falcon-H1-1.5B, whose layers have attention and a recurrence."""
    return json.loads((DATA / "falcon-h1-1.5b.json").read_text())


HF_BLOG = "[huggingface/blog](https://github.com/huggingface/blog/blob/main/llama31.md), llama31.md"
FALCON = "llama.cpp's log in [genie-claw #410](https://github.com/GeniePod/genie-claw/issues/410)"
STATED = (
    Stated(
        "deepseek-ai/DeepSeek-V3",
        68.6,
        "KB per token",
        lambda token, once: token / 1024,
        "",
        "[tooljolt.com](https://tooljolt.com/tools/deepseek-v3-kv-cache-calculator)",
    ),
    Stated(
        "deepseek-ai/DeepSeek-V3",
        10.72,
        "GiB at 163,840 tokens",
        lambda token, once: token * 163_840 / GIB,
        "stated of V3.2: its latents are those of V3, the keys of its index are not in the number",
        "llama.cpp, by [provide.ai](https://provide.ai/the-exact-kv-cache-usage-of-deepseek-v4/)",
    ),
    Stated(
        "meta-llama/Llama-3.1-8B",
        15.62,
        "GiB at 128,000 tokens",
        lambda token, once: token * 128_000 / GIB,
        "",
        HF_BLOG,
    ),
    Stated(
        "meta-llama/Llama-3.1-70B",
        39.06,
        "GiB at 128,000 tokens",
        lambda token, once: token * 128_000 / GIB,
        "",
        HF_BLOG,
    ),
    Stated(
        "meta-llama/Llama-3.1-405B",
        123.05,
        "GiB at 128,000 tokens",
        lambda token, once: token * 128_000 / GIB,
        "stated twice as much as 8 heads of 128 in 126 layers hold",
        HF_BLOG,
        factor=2,
    ),
    Stated(
        "meta-llama/Llama-3.1-405B",
        516,
        "KB per token",
        lambda token, once: token / 1000,
        "",
        "[taojin168.com](https://www.taojin168.com/cloud/forum.php?action=printable&mod=viewthread"
        "&tid=29712), of DeepSeek's paper on hardware",
    ),
    Stated(
        "tiiuae/Falcon-H1-1.5B",
        768.0,
        "MiB at 32,768 tokens, without states",
        lambda token, once: token * 32_768 / MIB,
        "",
        FALCON,
    ),
    Stated(
        "tiiuae/Falcon-H1-1.5B",
        72.98,
        "MiB of states",
        lambda token, once: once / MIB,
        "llama.cpp keeps the convolution's inputs in float32 too",
        FALCON,
        off=0.01,
    ),
    Stated(
        "Qwen/Qwen3-235B-A22B",
        16.46,
        "GiB on each of 4 cards for 367,404 tokens",
        lambda token, once: token / 4 * 367_404 / GIB,
        "",
        "SGLang's log in [vLLM #21348](https://github.com/vllm-project/vllm/issues/21348)",
    ),
)


def _cookbook(values: dict[str, Any]) -> float:
    return 2 * values["hidden_size"] * values["num_hidden_layers"]


def _width_by_heads(values: dict[str, Any]) -> float:
    share = values["num_key_value_heads"] / values["num_attention_heads"]
    return 2 * 2 * values["hidden_size"] * share * values["num_hidden_layers"]


def _lmcache(values: dict[str, Any]) -> float:
    if "kv_lora_rank" in values:
        return 2 * 2 * values["kv_lora_rank"] * values["num_hidden_layers"]
    width = values.get("head_dim", values["hidden_size"] // values["num_attention_heads"])
    return 2 * 2 * values["num_key_value_heads"] * width * values["num_hidden_layers"]


CALCULATORS = (
    Calculator(
        "[EleutherAI/cookbook](https://github.com/EleutherAI/cookbook),"
        " calc/calc_transformer_mem.py (069ae2ef)",
        _cookbook,
        "one vector of the model's width for a token of a layer: neither keys and values nor shared"
        " heads nor latents",
    ),
    Calculator(
        "[Leon-Sander/KV-Cache-Calculator](https://github.com/Leon-Sander/KV-Cache-Calculator),"
        " kv_cache_calculator.py (db12b7de)",
        _width_by_heads,
        "a head's width is the model's over its heads, which `head_dim` contradicts; no latents",
    ),
    Calculator(
        "[LMCache](https://github.com/LMCache/LMCache/pull/694), as its pull request 694 states the"
        " formulas",
        _lmcache,
        "of a latent, twice its rank, and not the rotated keys beside it",
    ),
)
