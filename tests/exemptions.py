"""What each mechanism is exempt from in the contract's checks, and why; nothing else may be.

A card that claims more or less than this table fails `test_mechanisms.py`. A row names checks, the
card's reason, and the trials that are exempt, as patterns of their labels (`1-sdpa-causal` is the
form `sdpa` of example 1, causal).
"""

from attnbench.contract import Tolerance

ALL = "*"
PADDING = ("padding at the end changes nothing",)
CORE = (
    "the core of a sequence of padding alone is zero",
    "the core alone is what stands between the projections",
)
EMPTY_CORE = CORE[:1]
SELECTION = ("causal is blind to the future", "float32 stays near float64")

ITS_OWN_MAPS = "it has no core apart from its linear maps"
FOLDED = "folding joins the linear maps to the core; there is no core apart"

EXEMPT = {
    "axial": (
        (PADDING, "the grid follows N", "0-*"),
        (CORE, ITS_OWN_MAPS, ALL),
    ),
    "bigbird": ((PADDING, "random blocks are drawn from all blocks of N", "[013]-*"),),
    "blockwise": ((PADDING, "a block is the n-th part of N", ALL),),
    "compressive_transformer": (
        (
            CORE,
            "compressed memory is made of x, so there is no core apart from the linear maps",
            ALL,
        ),
    ),
    "fastformer": (
        (CORE, FOLDED, "*-folded"),
        (EMPTY_CORE, "v is added to the k̄ of no key, or stands beside it", "[23]-eager"),
    ),
    "image_transformer": ((PADDING, "the image's width follows N", "2-*"),),
    "linear_transformer": ((CORE, FOLDED, "*-folded"),),
    "linformer": (
        (PADDING, "E and F have N columns", "[02]-*"),
        (CORE, FOLDED, "*-folded"),
        (CORE, FOLDED, "*-absorbed"),
    ),
    "longformer": ((CORE, FOLDED, "*-folded"),),
    "memory_compressed": ((CORE, FOLDED, "*-folded*"),),
    "nystromformer": ((PADDING, "a landmark is the mean of the m-th part of N", ALL),),
    "poolingformer": ((CORE, "linear maps stand between its levels; there is no core apart", ALL),),
    "reformer": (
        (PADDING, "padding comes into the circle of chunks", ALL),
        (SELECTION, "a token's chunk depends on the tokens sorted before it", ALL),
    ),
    "routing_transformer": (
        (PADDING, "the size of a cluster follows N", ALL),
        (SELECTION, "a cluster takes its members from the whole sequence", ALL),
    ),
    "set_transformer": ((CORE, ITS_OWN_MAPS, ALL),),
    "sinkhorn": (
        (PADDING, "W_B has a column for each block of N", "[12]-*"),
        (CORE, ITS_OWN_MAPS, ALL),
    ),
    "smart_bird": (
        (PADDING, "the draws depend on N", "[0124]-*"),
        (CORE, "the sketch reads x, so there is no core apart from the linear maps", ALL),
    ),
    "sparse_transformer": ((PADDING, "the stride follows N", "1-*"),),
    "star_transformer": ((CORE, ITS_OWN_MAPS, ALL),),
    "synthesizer": (
        (PADDING, "the logits have N columns", "[1234]-*"),
        (CORE, ITS_OWN_MAPS, ALL),
    ),
}

# an example by its number, and whether it is causal
REFUSED = {"sinkhorn": {(2, True): "SortCut has no causal form"}}

ACROSS_0 = "what rounds across ReLU's 0 gains or loses its whole gradient"

WIDER = {
    "set_transformer": Tolerance(bfloat16=0.3, reason=ACROSS_0),
    "star_transformer": Tolerance(bfloat16=0.3, reason=ACROSS_0),
}
