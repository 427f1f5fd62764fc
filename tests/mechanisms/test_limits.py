"""Options at which mechanisms are softmax attention, with the same parameters."""

from itertools import product

import pytest
import torch
from torch import nn

from attnbench.attention.checks.trial import causal_values
from attnbench.mechanisms.catalogue.registry import card
from attnbench.mechanisms.smart_bird import SAMPLINGS
from tests.mechanisms.building import build, workload

N = 13
WITHOUT_VECTORS = dict.fromkeys(("near", "to_global", "to_long"), nn.init.zeros_)
WITHOUT_POSITIONS = dict.fromkeys(("position.weight", "u", "v"), nn.init.zeros_)
COPIED = dict.fromkeys(("E", "F"), nn.init.eye_)
UNCOMPRESSED = dict.fromkeys(("compress_key.weight", "compress_value.weight"), nn.init.eye_)
UNMIXED = {"alpha": lambda alpha: alpha.copy_(torch.tensor([-400.0, 400.0]))}
VARIANTS = ("dense", "random", "factorized_random", "factorized_dense")
NULL_KEYS = {("memory_compressed", True)}  # beside those of the tokens
LIMITS = (
    ("etc", {"global_tokens": 99, "radius": 1, "shared": True}, WITHOUT_VECTORS),
    ("etc", {"global_tokens": 3, "radius": 99, "shared": True}, WITHOUT_VECTORS),
    ("etc", {"global_tokens": N, "radius": 4, "shared": True}, WITHOUT_VECTORS),
    ("linformer", {"rank": N}, COPIED),
    ("memory_compressed", {"compression": 1}, UNCOMPRESSED),
    ("moba", {"block": 2, "blocks": 7}, {}),
    ("nystromformer", {"landmarks": 24, "conv_kernel": 0}, {}),
    ("nystromformer", {"landmarks": N, "conv_kernel": 0}, {}),
    ("routing_transformer", {"window": N, "local_heads": 4}, {}),
    ("sinkhorn", {"block": 64}, {}),
    ("sinkhorn", {"block": 64, "sort_cut": 1}, {}),
    ("sliding_window", {"window": N}, {}),
    ("sliding_window", {"window": 50}, {}),
    *(("smart_bird", {"keys": 50, "sampling": sampling}, {}) for sampling in SAMPLINGS),
    *(("synthesizer", {"variant": variant, "mixture": True}, UNMIXED) for variant in VARIANTS),
    ("transformer_xl", {"segment": 50}, WITHOUT_POSITIONS),
)


def every():
    """Each of them in each form that runs here, in each causality."""
    for name, options, changes in LIMITS:
        tested = card(name)
        config = tested.config(**options)
        for form, causal in product(tested.own_forms, causal_values(tested.causality)):
            reason = tested.refusal(form, config, workload(name, seq_len=N, causal=causal))
            if reason or tested.forms[form].compiles or (name, causal) in NULL_KEYS:
                continue
            label = f"{name}-{form}-{options}" + "-causal" * causal
            yield pytest.param(name, form, options, causal, changes, id=label)


@pytest.mark.parametrize(("name", "form", "options", "causal", "changes"), [*every()])
def test_it_is_softmax_attention(name, form, options, causal, changes):
    module = build(name, form, seq_len=N, causal=causal, **options).eval()
    with torch.no_grad():
        for parameter, change in changes.items():
            change(module.get_parameter(parameter))
    full = build("transformer", seq_len=N, causal=causal)
    full.load_state_dict(module.state_dict(), strict=False)
    x = torch.randn(2, N, 16, dtype=torch.float64)
    torch.testing.assert_close(module(x), full(x))
