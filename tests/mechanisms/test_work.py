"""The work of forms: where which is the default, and operations per token in publications."""

from dataclasses import replace

import pytest

from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Mode, Selection, Workload

LARGE = {"seq_len": 2048}
SHORT = {"seq_len": 128}
LONG = {"seq_len": 4096, "width": 16, "heads": 4, "mode": Mode.TRAINING, "causal": True}
SMALL = {"batch": 2, "seq_len": 12, "width": 16, "heads": 4}
EIGHT = {**SMALL, "batch": 8}
MANY = {"batch": 12, "seq_len": 8, "width": 16, "heads": 4}
CORE = {"level": Level.CORE}
TRAINING = {"mode": Mode.TRAINING, "causal": True}
DEFAULTS = (
    ("fastformer", {**SMALL, "seq_len": 32}, "folded"),
    ("fastformer", {**SMALL, "seq_len": 31}, "eager"),
    ("fastformer", {**SMALL, "seq_len": 32, **CORE}, "eager"),
    ("fastformer[interaction=add]", {**SMALL, "seq_len": 32}, "eager"),
    ("latent", LARGE, "sdpa"),
    ("latent[kv_rank=4]", LARGE, "absorbed"),
    ("linear_transformer", LARGE, "folded"),
    ("linear_transformer", SHORT, "eager"),
    ("linear_transformer", {**LARGE, "causal": True}, "eager"),
    ("linear_transformer", {**LARGE, **CORE}, "eager"),
    ("linear_transformer", {**LARGE, "dtype": "bfloat16"}, "eager"),
    ("linformer[rank=16]", LARGE, "absorbed"),
    ("linformer[rank=64]", LARGE, "folded"),
    ("linformer[rank=16]", SHORT, "folded"),
    ("linformer", SHORT, "eager"),
    ("linformer[rank=16,sharing=none]", LARGE, "eager"),
    ("linformer[rank=16]", {**LARGE, **CORE}, "eager"),
    ("memory_compressed", {**SMALL, "seq_len": 4096, **CORE}, "sdpa"),
    ("memory_compressed[compression=3]", MANY, "folded"),
    ("memory_compressed[compression=4]", MANY, "sdpa"),
    ("performer", LARGE, "chunked"),
    ("performer", {**LARGE, "device": "cuda"}, "eager"),
    ("set_transformer", LARGE, "folded"),
    ("set_transformer", {"seq_len": 64}, "eager"),
    ("set_transformer[points=64]", LARGE, "eager"),
    ("set_transformer[block=sab]", LARGE, "sdpa"),
    ("synthesizer", SMALL, "sdpa"),
    ("synthesizer[variant=random]", SMALL, "eager"),
    ("synthesizer[variant=factorized_random]", SMALL, "sdpa"),
    ("synthesizer[variant=factorized_random]", EIGHT, "eager"),
    ("synthesizer[variant=factorized_random]", {**EIGHT, "padding": 0.3}, "sdpa"),
    ("transformer_xl", {"seq_len": 65_536, **TRAINING}, "recomputed"),
    ("transformer_xl", {"seq_len": 2048, **TRAINING}, "eager"),
)
# mechanism with options, tokens, and millions of operations per token
PUBLISHED = (
    *(("bigbird[block=8,global_tokens=16,random_tokens=16]", n, 0.598) for n in (128, 65_536)),
    ("longformer[window=16,global_tokens=16]", 128, 0.860),
    ("longformer[window=16,global_tokens=16]", 512, 0.848),
    ("longformer[window=16,global_tokens=16]", 2048, 0.845),
    ("longformer[window=16,global_tokens=16]", 65_536, 0.844),
    ("poolingformer[window=16,pool_window=256,pooling=max]", 2048, 1.040),
    ("poolingformer[window=16,pool_window=256,pooling=mean]", 2048, 1.042),
    ("poolingformer[window=16,pool_window=256,pooling=ldconv]", 2048, 1.043),
)


def chosen(series, **sizes):
    """The card, the options, and one sequence of D = 256 in 16 heads, unless sizes say else."""
    selection = Selection.read(series)
    tested = card(selection.name)
    w = Workload(**{"batch": 1, "level": Level.ATTENTION, **sizes})
    return tested, tested.configure(dict(selection.options)), w


@pytest.mark.parametrize(("series", "sizes", "form"), DEFAULTS)
def test_the_default_form_is_that_with_the_least_work(series, sizes, form):
    tested, config, w = chosen(series, **sizes)
    assert tested.default(config, w) == form


@pytest.mark.parametrize(("series", "seq_len", "expected"), PUBLISHED)
def test_operations_per_token_are_as_published(series, seq_len, expected):
    tested, config, w = chosen(series, seq_len=seq_len)
    flops = tested.forms["eager"].flops(config, w)
    total = flops.projections + flops.core
    assert total / w.tokens / 1e6 == pytest.approx(expected, abs=5e-4)


def test_training_of_blocked_windows_keeps_no_scores():
    tested, config, w = chosen("sliding_window[window=128]", **LONG)
    blocked, eager = (tested.forms[form].elements(config, w) for form in ("blocked", "eager"))
    assert blocked < eager / 10


@pytest.mark.parametrize("series", ["transformer", "grouped_query", "latent", "differential"])
def test_fused_forms_count_no_products_with_later_keys(series):
    tested, config, w = chosen(series, seq_len=4096)
    w, padded = replace(w, causal=True), replace(w, causal=True, padding=0.5)
    whole, half = (tested.forms["sdpa"].flops(config, each).core for each in (padded, w))
    assert half == pytest.approx(whole * 4097 / 8192, rel=0.05)  # what is not scores is linear
    if series == "transformer":
        flex = tested.forms["flex"].flops(config, w).core
        assert half <= flex <= 1.04 * half  # in blocks of 128
