"""The complete list of exemptions from the contract's checks; the reason for each is on its card.

A card that claims more or less than this table fails `test_mechanisms.py`. The exempt trials are
patterns of their labels (`1-sdpa-causal` is the form `sdpa` of example 1, causal).
"""

from attnbench.attention.card import Tolerance

ALL = "*"
PADDING = ("padding at the end changes nothing",)
EMPTY_CORE = ("the core of a sequence of padding alone is zero",)
CORE = (*EMPTY_CORE, "the core is what stands between the projections")
SELECTION = ("causal is blind to the future",)

EXEMPT = {
    "axial": {PADDING: "0-*", CORE: ALL},
    "bigbird": {PADDING: "[013]-*"},
    "blockwise": {PADDING: ALL},
    "compressive_transformer": {CORE: ALL},
    "fastformer": {CORE: "*-folded", EMPTY_CORE: "[23]-eager"},
    "fnet": {PADDING: ALL, CORE: ALL},
    "image_transformer": {PADDING: "2-*"},
    "linear_transformer": {CORE: "*-folded"},
    "linformer": {PADDING: "[02]-*", CORE: "*-*ed"},  # folded and absorbed
    "longformer": {CORE: "*-folded"},
    "memory_compressed": {CORE: "*-folded*"},
    "nystromformer": {PADDING: ALL},
    "poolingformer": {CORE: ALL},
    "reformer": {PADDING: ALL, SELECTION: ALL},
    "routing_transformer": {PADDING: ALL, SELECTION: ALL},
    "set_transformer": {CORE: ALL},
    "sinkhorn": {PADDING: "[12]-*", CORE: ALL},
    "smart_bird": {PADDING: "[0124]-*", CORE: ALL},
    "sparse_transformer": {PADDING: "1-*"},
    "star_transformer": {CORE: ALL},
    "synthesizer": {PADDING: "[1234]-*", CORE: ALL},
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
