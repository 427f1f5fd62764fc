"""The complete list of exemptions from the contract's checks, with the reason for each.

A card that claims more or less than this table fails `test_mechanisms.py`. A row names checks, the
reason on the card, and the exempt trials, as patterns of their labels (`1-sdpa-causal` is the form
`sdpa` of example 1, causal).
"""

from attnbench.attention.card import Tolerance

ALL = "*"
PADDING = ("padding at the end changes nothing",)
CORE = (
    "the core of a sequence of padding alone is zero",
    "the core is what stands between the projections",
)
EMPTY_CORE = CORE[:1]
SELECTION = ("causal is blind to the future",)

NO_CORE = "the mechanism has no core separate from its projections"
FOLDED = "folding merges the projections into the core, so there is no separate core"

EXEMPT = {
    "axial": (
        (PADDING, "the grid depends on N", "0-*"),
        (CORE, NO_CORE, ALL),
    ),
    "bigbird": ((PADDING, "random blocks are drawn from all blocks of N", "[013]-*"),),
    "blockwise": ((PADDING, "blocks are N / n tokens long", ALL),),
    "compressive_transformer": (
        (
            CORE,
            "the compressed memory is computed from x, so there is no separate core",
            ALL,
        ),
    ),
    "fastformer": (
        (CORE, FOLDED, "*-folded"),
        (EMPTY_CORE, "without a key, k̄ is 0, but v is added or concatenated", "[23]-eager"),
    ),
    "fnet": (
        (PADDING, "F_N depends on N", ALL),
        (CORE, NO_CORE, ALL),
    ),
    "image_transformer": ((PADDING, "the width of the image depends on N", "2-*"),),
    "linear_transformer": ((CORE, FOLDED, "*-folded"),),
    "linformer": (
        (PADDING, "E and F have N columns", "[02]-*"),
        (CORE, FOLDED, "*-folded"),
        (CORE, FOLDED, "*-absorbed"),
    ),
    "longformer": ((CORE, FOLDED, "*-folded"),),
    "memory_compressed": ((CORE, FOLDED, "*-folded*"),),
    "nystromformer": ((PADDING, "a landmark averages N / M tokens", ALL),),
    "poolingformer": (
        (CORE, "projections separate its two levels, so there is no separate core", ALL),
    ),
    "reformer": (
        (PADDING, "padding is part of the circle of chunks", ALL),
        (SELECTION, "a token's chunk depends on the tokens sorted before it", ALL),
    ),
    "routing_transformer": (
        (PADDING, "the size of a cluster depends on N", ALL),
        (SELECTION, "a cluster takes its members from the whole sequence", ALL),
    ),
    "set_transformer": ((CORE, NO_CORE, ALL),),
    "sinkhorn": (
        (PADDING, "W_B has a column for each block of N", "[12]-*"),
        (CORE, NO_CORE, ALL),
    ),
    "smart_bird": (
        (PADDING, "the draws depend on N", "[0124]-*"),
        (CORE, "the sketch reads x, so there is no separate core", ALL),
    ),
    "sparse_transformer": ((PADDING, "the stride depends on N", "1-*"),),
    "star_transformer": ((CORE, NO_CORE, ALL),),
    "synthesizer": (
        (PADDING, "the logits have N columns", "[1234]-*"),
        (CORE, NO_CORE, ALL),
    ),
}

# number of the example, and whether it is causal
REFUSED = {"sinkhorn": {(2, True): "SortCut has no causal form"}}

ACROSS_0 = "values that round across the 0 of ReLU gain or lose their whole gradient"
LARGEST = "rounding may change which token is the largest"

SMALL = "RMSNorm magnifies the rounding of q and k where a token's o is small"
SMALL_SHIFTED = "GroupNorm magnifies the rounding of r and k where a token's o is small"
WIDER = {
    "gated_delta_net": Tolerance(float16=0.01, reason=SMALL),
    "kimi_delta": Tolerance(float16=0.02, bfloat16=0.1, reason=SMALL),
    "poolingformer": Tolerance(float16=0.1, reason=LARGEST),
    "rwkv7": Tolerance(float16=0.01, bfloat16=0.1, reason=SMALL_SHIFTED),
    "set_transformer": Tolerance(float16=0.3, bfloat16=0.3, reason=ACROSS_0),
    "star_transformer": Tolerance(float16=0.3, bfloat16=0.3, reason=ACROSS_0),
}
