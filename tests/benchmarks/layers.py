"""Whether the sum over a model's kinds of layers is the time of the layers built as one stack.

    python -m tests.benchmarks.layers FOLDER [SECONDS]

Ten models of four to six layers, with the structure of real ones: for each, one sweep of a layer of
each kind and of the stack of all layers, in decode and in inference. A round has one sum and one
time of the stack, which took turns; their ratio has a 95 % interval over rounds.
"""

import json
import sys
from itertools import groupby
from pathlib import Path
from statistics import median

import attnbench
from attnbench.analysis.statistics.curves import series_names
from attnbench.commands.model.command import mechanisms, sizes_of, stacks, weight_bytes
from attnbench.commands.model.configuration import fields
from attnbench.commands.model.configured_layers import layers
from attnbench.commands.model.costs import (
    by_round,
    estimates,
    mechanism_of,
    sum_of_layers,
)
from attnbench.commands.model.mechanisms import measurable
from attnbench.records.selection import layers as stacked
from attnbench.records.storage.journal import load
from attnbench.running.request.options import read
from attnbench.running.request.requests import request

COMMON = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}
LATENT = {"kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64}
DELTA = {
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
}
KIMI = {"full_attn_layers": [4], "num_heads": 8, "head_dim": 64, "short_conv_kernel_size": 4}
MAMBA = {"mamba_n_heads": 16, "mamba_d_head": 64, "mamba_d_state": 64, "mamba_n_groups": 1}
MODELS = {
    "cohere2": {"sliding_window": 128},
    "gemma3_text": {"sliding_window": 128, "num_hidden_layers": 6},
    "gpt_oss": {"sliding_window": 128},
    "qwen3_next": DELTA,
    "qwen3_5_text": {**DELTA, "linear_num_value_heads": 12, "head_dim": 128},
    "olmo_hybrid": {**DELTA, "linear_value_head_dim": 128},
    "kimi_linear": {**LATENT, "linear_attn_config": KIMI},
    "granitemoehybrid": {
        **MAMBA,
        "layer_types": ["mamba", "mamba", "mamba", "attention"],
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
    "nemotron_h": {
        "hybrid_override_pattern": "MM-M*-",
        "num_hidden_layers": 6,
        "mamba_num_heads": 12,
        "mamba_head_dim": 64,
        "ssm_state_size": 64,
        "n_groups": 2,
        "conv_kernel": 4,
    },
    "minimax": {"head_dim": 96},
}


def built(kind, folder):
    """The model, and its layers in order as a stack."""
    file = folder / "config.json"
    sizes = {"num_hidden_layers": 4, **COMMON, **MODELS[kind], "model_type": kind}
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(sizes))
    found = measurable(file, feeds=False)
    names = {one.words: one.mechanism for one in found.kinds}
    order = [name for _, one in layers(fields(file)) if (name := names[one.kind])]
    runs = [(name, len([*same])) for name, same in groupby(order)]
    return found, f"stack({'+'.join(f'{n}*{name}' for name, n in runs)})"


def ratios(kind, folder, seconds):
    """The sum over the stack at each mode and length, with its interval, and the rounds."""
    found, stack = built(kind, folder)
    sweep = folder / "sweep"
    if not sweep.exists():
        given = {**sizes_of(found), "mode": "decode,inference", "lengths": "256"}
        chosen = mechanisms(kind, found)
        asked = request({**read({**given, "dtype": "float32"}), "models": tuple(chosen)})
        kinds = stacks(chosen, weight_bytes(asked))
        swept(given, [*kinds, stack], seconds, sweep)
    stored = load(sweep)
    names = series_names(stored.plan)
    counts, whole = matched(stored.plan, names, mechanisms(kind, found))
    depth = sum(counts.values())
    logs = {
        place: [
            median(total / (depth * one[whole][pair]) for pair, total in totals.items())
            for one in rounds.values()
            if {*counts, whole} <= one.keys()
            and (totals := shared({name: one[name] for name in counts}, counts, one[whole]))
        ]
        for place, rounds in by_round(stored, names).items()
    }
    logs = {place: own for place, own in logs.items() if own}
    return {place: (ratio, len(logs[place])) for place, ratio in estimates(logs).items()}


def matched(plan, names, layers_of):
    """The number of layers that each series stands for, and the series of the whole model.

    `names` are the series of cases, by key, and `layers_of` the layers of each mechanism. The whole
    is the one stack whose layers are of several mechanisms.
    """
    cases = {names[planned.case.key]: planned.case for planned in plan}
    (whole,) = [name for name, case in cases.items() if len({*stacked(case.mechanism)}) > 1]
    of = {name: mechanism_of(case, layers_of) for name, case in cases.items() if name != whole}
    if sorted(of.values()) != sorted(layers_of):
        raise SystemExit(f"series {sorted(of)} are not those of {sorted(layers_of)}")
    return {name: layers_of[mechanism] for name, mechanism in of.items()}, whole


def swept(given, models, seconds, folder):
    """A sweep of the kinds of layers beside what they are compared with, within so many seconds."""
    budget = {"budget": seconds, "precision": 0.01}
    attnbench.sweep(**given, **budget, models=models, out=folder, progress=False)


def shared(laps, counts, whole):
    """The sums in pairs of laps that the stack has too."""
    return {pair: total for pair, total in sum_of_layers(laps, counts).items() if pair in whole}


def main(folder, seconds="90s"):
    print("model mode N rounds sum/stack low high")
    inside = []
    for kind in MODELS:
        for (mode, n, _), (ratio, rounds) in ratios(kind, Path(folder) / kind, seconds).items():
            inside.append(not (ratio.low > 1 or ratio.high < 1))
            ends = " ".join(f"{end:.3f}" for end in (ratio.point, ratio.low, ratio.high))
            print(kind, mode, n, rounds, ends, "" if inside[-1] else "outside", flush=True)
    print(f"{sum(inside)} of {len(inside)} intervals contain 1, or are unknown")


if __name__ == "__main__":
    main(*sys.argv[1:])
