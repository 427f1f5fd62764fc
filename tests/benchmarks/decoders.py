"""Whether the sum over a model's kinds of layers is the time of transformers' own layers.

    python -m tests.benchmarks.decoders FOLDER [SECONDS]
    python -m tests.benchmarks.decoders --one-process [ROUNDS]

Ten models of four layers: for each, one sweep of a layer of each kind, of each feed-forward, and of
the four layers of transformers as one module, for one token and for 64. What `attnbench model`
leaves out of its sum is left out there too: the norms around attention and feed-forward, those of
queries and keys, and positions are identities. Attention is measured in the form that transformers
computes, where it has one, so that the ratio is not one of two libraries. A round has one sum and
one time of the layers, which took turns; their ratio has a 95 % interval over rounds.

A round of a sweep imports transformers in several processes, which a busy machine takes a minute
for. `--one-process` builds the same modules in one process instead, anew for each round, and lets
them take turns there by CPU time: less than a sweep, as all rounds share a process.
"""

import json
import random
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from torch import nn

from attnbench.analysis.statistics.curves import series_names
from attnbench.commands.model.command import mechanisms, sizes_of, stacks, weight_bytes
from attnbench.commands.model.costs import by_round, estimates, mechanism_of
from attnbench.commands.model.mechanisms import measurable
from attnbench.devices import SYSTEM
from attnbench.mechanisms.catalogue import registry
from attnbench.mechanisms.peers import Packed
from attnbench.records import Level, Selection, Workload
from attnbench.records.storage.journal import load
from attnbench.running.request.options import read
from attnbench.running.request.requests import request
from tests.benchmarks.layers import shared, swept

ROOT = Path(__file__).parents[2]
LAPS = {1: 24, 64: 12}  # of a round in one process, by length
LENGTHS = ",".join(map(str, LAPS))
CACHED = torch.zeros(1 << 25)  # 128 MiB, written before each pass in one process
COMMON = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "moe_intermediate_size": 1024,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_hidden_layers": 4,
    "vocab_size": 64,
    "num_experts": 8,
    "num_local_experts": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "pad_token_id": 0,
}
LATENT = {
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "num_key_value_heads": 32,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
}
DELTA = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "shared_expert_intermediate_size": 1024,
}
GPT2 = {"n_embd": 2048, "n_layer": 4, "n_head": 32, "vocab_size": 64, "activation_function": "gelu"}
WINDOW = {"sliding_window": 32}
MODELS = {
    "llama": COMMON,
    "mistral": COMMON | WINDOW,
    "qwen3": COMMON,
    "gemma3_text": COMMON | WINDOW | {"sliding_window_pattern": 2, "query_pre_attn_scalar": 64},
    "gpt2": GPT2,
    "mixtral": COMMON | {"intermediate_size": 1024, "sliding_window": None},
    "qwen3_moe": COMMON | {"mlp_only_layers": [0]},
    "deepseek_v3": COMMON | LATENT,
    "minimax": COMMON | {"num_key_value_heads": 32, "intermediate_size": 1024},
    "qwen3_next": COMMON | DELTA,
}


class Decoders(nn.Module):
    """The layers of a model of transformers with these fields: [B, N, D] to [B, N, D]."""

    def __init__(self, width: int, heads: int, causal: bool = True, *, fields: dict) -> None:
        super().__init__()
        from transformers import AutoConfig, AutoModel

        config = AutoConfig.for_model(**fields, attn_implementation="sdpa")
        model = AutoModel.from_config(config)
        self.layers = model.h if hasattr(model, "h") else model.layers
        self.kinds = getattr(config, "layer_types", None) or ["full_attention"] * len(self.layers)
        if fields["model_type"] == "mistral":
            self.kinds = ["sliding_attention"] * len(self.layers)
        self.window = fields.get("sliding_window")
        self.rotated = fields.get("qk_rope_head_dim") or fields.get("head_dim")
        if fields["model_type"] == "qwen3_next":
            self.rotated //= 4  # as it rotates a quarter of a head
        for layer in self.layers:
            without_norms(layer)

    def forward(self, x):
        more = {}
        if self.rotated:
            shape = 1, x.shape[1], self.rotated
            more["position_embeddings"] = x.new_ones(shape), x.new_zeros(shape)
        band = self.band(x) if "sliding_attention" in self.kinds else None
        for layer, kind in zip(self.layers, self.kinds, strict=True):
            mask = band if kind == "sliding_attention" else None
            x = layer(x, attention_mask=mask, **more)
            x = x[0] if isinstance(x, tuple) else x
        return x

    def band(self, x):
        """The mask of a window; its models give none where that holds every token."""
        n = x.shape[1]
        if n <= self.window:
            return None
        return torch.ones(n, n, dtype=torch.bool).tril().triu(1 - self.window)[None, None]


def without_norms(layer):
    """Identities in place of the norms around attention and feed-forward, of queries and keys.

    Norms of latents and of what a recurrence gives stay, as mechanisms have them.
    """
    attention = getattr(layer, "self_attn", None)
    for module in (layer, attention):
        for name, part in module.named_children() if module is not None else ():
            kept = name == "kv_a_layernorm" or (name == "norm" and module is attention)
            if type(part).__name__.endswith("Norm") and not kept:
                setattr(module, name, nn.Identity())


FILE = """
import sys

sys.path.insert(0, {root!r})
from tests.benchmarks.decoders import Decoders


class Whole(Decoders):
    def __init__(self, width, heads, causal=True):
        super().__init__(width, heads, causal, fields={fields!r})
"""


def asked(kind, folder):
    """What can be measured of a model, its mechanisms in forms of transformers, and its layers."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = {**MODELS[kind], "model_type": kind}
    (folder / "config.json").write_text(json.dumps(fields))
    file = folder / "whole.py"
    file.write_text(FILE.format(root=str(ROOT), fields=fields))
    return measurable(folder / "config.json"), f"{file}:Whole"


def in_their_form(name):
    """A mechanism in the form that transformers computes, where it has one for these options."""
    chosen = Selection.read(name)
    own = {"grouped_query", "sliding_window", "latent", "lightning", "gated_delta_net"}
    refused = {"gate", "sink_logit"} & {option for option, _ in chosen.options}
    form = "transformers" if chosen.name in own and not refused else None
    return str(Selection(name=chosen.name, form=form, options=chosen.options))


def ratios(kind, folder, seconds):
    """The sum over transformers' layers at each length, with its interval, and the rounds."""
    found, whole = asked(kind, folder)
    layers_of = mechanisms(kind, found)
    sweep = folder / "sweep"
    if not sweep.exists():
        given = {**sizes_of(found), "mode": "inference", "lengths": LENGTHS}
        typed = read({**given, "dtype": "float32"})
        own = weight_bytes(request({**typed, "models": tuple(layers_of)}))
        rows = [
            part.replace(name, in_their_form(name))
            for name, part in zip(layers_of, stacks(layers_of, own), strict=True)
        ]
        swept(given, [*rows, whole], seconds, sweep)
    stored = load(sweep)
    names = series_names(stored.plan)
    cases = {names[planned.case.key]: planned.case for planned in stored.plan}
    (alone,) = [name for name, case in cases.items() if ".py" in case.mechanism]
    theirs = {in_their_form(name): name for name in layers_of}
    counts = {
        name: layers_of[theirs[known]]
        for name, case in cases.items()
        if name != alone and (known := matching(case, theirs))
    }
    if len(counts) != len(layers_of):
        raise SystemExit(f"series {sorted(counts)} are not those of {sorted(layers_of)}")
    logs = {
        place: [
            median(total / one[alone][pair] for pair, total in totals.items())
            for one in rounds.values()
            if {*counts, alone} <= one.keys()
            and (totals := shared({name: one[name] for name in counts}, counts, one[alone]))
        ]
        for place, rounds in by_round(stored, names).items()
    }
    logs = {place: own for place, own in logs.items() if own}
    return {place: (ratio, len(logs[place])) for place, ratio in estimates(logs).items()}


def matching(case, theirs):
    """Which of the mechanisms, as `theirs` has them, a case is of."""
    without = {
        str(Selection(name=one.name, options=one.options)): name
        for name in theirs
        for one in [Selection.read(name)]
    }
    found = mechanism_of(case, [*theirs]) or mechanism_of(case, [*without])
    return found if found in theirs else without.get(found)


def module_of(name, found, n):
    """A mechanism in the form of transformers, where it has one, for n tokens."""
    chosen = Selection.read(in_their_form(name))
    mechanism = registry.card(chosen.name)
    config = mechanism.configure(dict(chosen.options))
    level = Level.ATTENTION
    w = Workload(batch=1, seq_len=n, width=found.width, heads=found.heads, level=level, causal=True)
    form = chosen.form or mechanism.default_form(config, w)
    assert mechanism.refusal(form, config, w) is None
    return merged(mechanism.forms[form](config, config.sized(w)).eval())


def merged(module):
    """The module with maps that it merges in every pass merged once, as transformers has them."""
    for parent in [*module.modules()]:
        for name, part in parent.named_children():
            if isinstance(part, Packed):
                weight = part.weight
                linear = nn.Linear(*reversed(weight.shape), bias=part.bias is not None)
                linear.weight = nn.Parameter(weight.detach())
                if part.bias is not None:
                    linear.bias = nn.Parameter(part.bias.detach())
                setattr(parent, name, linear)
    return module


def transposed(module):
    """The module with maps that are stored from inputs to outputs, as GPT-2 has them."""
    from transformers.pytorch_utils import Conv1D

    for parent in [*module.modules()]:
        for name, part in parent.named_children():
            if isinstance(part, nn.Linear):
                theirs = Conv1D(part.out_features, part.in_features)
                theirs.weight = nn.Parameter(part.weight.detach().T.contiguous())
                if part.bias is not None:
                    theirs.bias = nn.Parameter(part.bias.detach())
                setattr(parent, name, theirs)
    return module


def seconds_of(modules, x):
    """CPU time of passes through these modules, timed each for itself and added up.

    A module of the sum has a residual connection, as layers have. No weight is in the caches.
    """
    CACHED.add_(1.0)
    total_s = 0.0
    for module in modules:
        began = time.process_time()
        if isinstance(module, Decoders):
            module(x)
        else:
            x + module(x)
        total_s += time.process_time() - began
    return total_s


def round_here(kind, found):
    """The sum over the layers at each length, of modules that are new."""
    layers_of = mechanisms(kind, found)
    whole = Decoders(found.width, found.heads, fields={**MODELS[kind], "model_type": kind}).eval()
    medians = {}
    for n, laps in LAPS.items():
        modules = {name: module_of(name, found, n) for name in layers_of}
        if kind == "gpt2":
            modules = {name: transposed(module) for name, module in modules.items()}
        row = [modules[name] for name in layer_by_layer(layers_of)]
        sides = {"sum": row, "whole": [whole]}
        found_ratios = []
        for lap in range(laps + 1):
            x = torch.randn(1, n, found.width)
            times = {side: seconds_of(sides[side], x) for side in random.sample([*sides], 2)}
            if lap:  # the first warms up
                found_ratios.append(times["sum"] / times["whole"])
        medians[n] = median(found_ratios)
    return medians


def layer_by_layer(layers_of):
    """The kinds of layers as often as the model has them, each mixer followed by a feed-forward.

    So each finds the caches full of another's weights, as in the model.
    """
    names = [name for name, layers in layers_of.items() for _ in range(layers)]
    feeds = [name for name in names if Selection.read(name).name in ("feed_forward", "experts")]
    mixers = [name for name in names if name not in feeds]
    return [name for pair in zip(mixers, feeds, strict=True) for name in pair]


def here(rounds="5", *kinds):
    """The ratios of modules in this process."""
    torch.set_num_threads(1)
    SYSTEM.keep_pages()  # as in processes that measure
    every = {}
    for kind in kinds or MODELS:
        with TemporaryDirectory() as folder:
            found, _ = asked(kind, Path(folder))
        with torch.no_grad():
            own = [round_here(kind, found) for _ in range(int(rounds))]
        for n in LAPS:
            every["inference", n, kind] = [one[n] for one in own]
        print(kind, own, flush=True, file=sys.stderr)
    show((kind, n, ratio, int(rounds)) for (_, n, kind), ratio in estimates(every).items())


def of_sweeps(folder, seconds="60s", *kinds):
    """The ratios of sweeps."""
    show(
        (kind, n, ratio, rounds)
        for kind in kinds or MODELS
        for (_, n, _), (ratio, rounds) in ratios(kind, Path(folder) / kind, seconds).items()
    )


def show(rows):
    """Print each ratio with its interval, and how many of these contain 1."""
    print("model N rounds sum/layers low high")
    inside = []
    for kind, n, ratio, rounds in rows:
        inside.append(not (ratio.low > 1 or ratio.high < 1))
        ends = " ".join(f"{end:.3f}" for end in (ratio.point, ratio.low, ratio.high))
        print(kind, n, rounds, ends, "" if inside[-1] else "outside", flush=True)
    print(f"{sum(inside)} of {len(inside)} intervals contain 1, or are unknown")


if __name__ == "__main__":
    first, *rest = sys.argv[1:]
    here(*rest) if first == "--one-process" else of_sweeps(first, *rest)
