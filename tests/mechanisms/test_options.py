"""Options and sizes that a mechanism refuses, and what it says of them."""

from dataclasses import fields

import pytest

from attnbench.errors import UnknownOption
from attnbench.mechanisms.catalogue import registry
from attnbench.records import Level, Selection, Workload

# options that may be 0; other whole numbers are at least 1, but for a seed
ZERO = (
    *("bigbird.global_tokens", "bigbird.random_tokens", "compressive_transformer.compressed"),
    *("compressive_transformer.memory", "differential.layer", "etc.clip", "latent.rope"),
    *("image_transformer.above", "image_transformer.beside", "image_transformer.memory"),
    *("longformer.global_tokens", "nystromformer.conv_kernel", "nystromformer.iterations"),
    *("routing_transformer.local_heads", "sinkhorn.iterations", "sinkhorn.sort_cut"),
    *("sliding_window.sink_tokens", "transformer_xl.memory"),
)
OPTIONS = (
    ("bigbird", {"block": 8, "random_tokens": 20}, "it must be a multiple of block = 8"),
    ("compressive_transformer", {"segment": 9, "memory": 9}, "rate must divide segment"),
    ("compressive_transformer", {"segment": 512, "memory": 500}, "segment must divide memory"),
    ("compressive_transformer", {"compression": "most_used", "memory": 0}, "memory=0 has none"),
    ("fnet", {"bias": True}, "no projections"),
    ("indexed", {"kv_rank": 5, "kv_heads": 2}, "one head of keys; leave kv_heads out"),
    ("indexed", {"block": 16, "budget": 8}, "budget is 8; it must be at least 16"),
    ("lightning", {"depth": 1.5}, "depth is 1.5; it must be from 0 to 1"),
    ("longformer", {"window": 5}, "window is 5; it must be an even number"),
    ("longformer", {"window": 0}, "window is 0; it must be an even number"),
    ("nystromformer", {"conv_kernel": 4}, "conv_kernel is 4; it must be odd, or 0 for none"),
    ("performer", {"epsilon": -1.0}, "epsilon is -1.0; it must be at least 0"),
    ("performer", {"kernel": "trigonometric", "epsilon": 0.1}, "takes no epsilon"),
    ("performer", {"kernel": "relu", "epsilon": 0.0}, "queries may read no key"),
    ("poolingformer", {"window": 3}, "window is 3; it must be an even number"),
    ("poolingformer", {"kernel": 2}, "kernel and pool_window must be at least stride = 4"),
    ("reformer", {"buckets": 12}, "buckets is 12; it must be None or a power of 2, at least 2"),
    ("reformer", {"buckets": 1}, "buckets is 1; it must be None or a power of 2"),
    ("routing_transformer", {"decay": 1.5}, "decay is 1.5; it must be between 0 and 1"),
    ("sinkhorn", {"temperature": 0.0}, "temperature is 0.0; it must be above 0"),
    ("smart_bird", {"sampling": "random", "train_sketch": False}, "has no sketch"),
)


# series, sizes other than 13 tokens of width 24 in 6 heads, and a part of what is said of them
WORKLOADS = (
    ("differential:eager", {"width": 12, "heads": 3}, "3 heads cannot form pairs"),
    ("fastformer:eager", {"causal": True}, "the mechanism has no causal form"),
    ("fastformer:folded[interaction=concat]", {}, "only interaction=product can be folded; use "),
    ("fastformer:folded", {"level": Level.CORE}, "so there is no separate core"),
    ("gated_delta_net:eager[value_heads=9]", {}, "9 heads of values cannot share 6 heads of keys"),
    ("gated_delta_net:eager[value_heads=96]", {}, "values of width 48 cannot form 96 heads"),
    ("gated_linear:eager[narrow=3]", {}, "heads of width 4 cannot have keys 3 times as narrow"),
    ("grouped_query:eager[kv_heads=4]", {}, "6 heads cannot share 4 heads of keys equally"),
    (
        "grouped_query:folded[kv_heads=2]",
        {"causal": True},
        "different keys; use grouped_query",
    ),
    ("linear_transformer:folded", {"causal": True}, "causal"),
    ("linear_transformer:folded", {"dtype": "bfloat16"}, "bfloat16"),
    ("linear_transformer:folded", {"level": Level.CORE}, "so there is no separate core"),
    ("linformer:eager[n_max=8]", {}, "13 tokens exceed n_max = 8, the columns of E"),
    ("mamba2:chunked[head_width=5]", {}, "inner width 48 is not divisible by heads of width 5"),
    ("mamba2:chunked[head_width=8,groups=4]", {}, "6 heads cannot form 4 equal groups"),
    ("routing_transformer:sdpa[local_heads=7]", {}, "local_heads is 7; there are only 6 heads"),
    ("set_transformer:folded[block=sab]", {}, "no fixed queries to fold; use set_transformer:sdpa"),
    ("sinkhorn:sdpa[sort_cut=2]", {"causal": True}, "SortCut has no causal form"),
    ("sinkhorn:sdpa[n_max=12]", {}, "13 tokens exceed n_max = 12, the positions of W_B"),
    ("sliding_window:eager[kv_heads=4]", {}, "6 heads cannot share 4 heads of keys equally"),
    ("sparse_transformer:eager", {"heads": 1}, "it takes at least 2 heads"),
    ("synthesizer:eager[n_max=12]", {}, "13 tokens exceed n_max = 12, the positions of the logits"),
    ("synthesizer:sdpa[variant=random]", {}, "is not a product of features; use synthesizer:"),
    ("transformer_xl:eager", {"width": 15, "heads": 5}, "distances need an even width"),
)


@pytest.mark.parametrize("name", registry.names())
def test_numbers_that_are_too_small_are_refused(name):
    card = registry.card(name)
    for option in (f.name for f in fields(card.config) if f.type in (int, int | None)):
        if option != "seed":
            with pytest.raises(UnknownOption, match=f"{option} .*must"):
                card.configure({option: -1 if f"{name}.{option}" in ZERO else 0})


@pytest.mark.parametrize("name", registry.names())
def test_unknown_words_are_refused_with_those_that_are_known(name):
    card = registry.card(name)
    for option in (f.name for f in fields(card.config) if f.type is str):
        with pytest.raises(UnknownOption, match=f"unknown {option} 'sorted'; known: "):
            card.configure({option: "sorted"})


@pytest.mark.parametrize(("name", "options", "message"), OPTIONS)
def test_impossible_options_are_refused(name, options, message):
    with pytest.raises(UnknownOption, match=message):
        registry.card(name).configure(options)


def test_none_may_be_a_word():
    """On the command line it means None, unless the option takes words."""
    chosen = Selection.read("linformer[sharing=none]")
    assert registry.card("linformer").configure(dict(chosen.options)).sharing == "none"


@pytest.mark.parametrize(("series", "sizes", "reason"), WORKLOADS)
def test_impossible_workloads_are_refused(series, sizes, reason):
    sizes = {"width": 24, "heads": 6, "level": Level.ATTENTION, **sizes}
    chosen, w = Selection.read(series), Workload(batch=1, seq_len=13, **sizes)
    card = registry.card(chosen.name)
    assert reason in card.refusal(chosen.form, card.configure(dict(chosen.options)), w)
