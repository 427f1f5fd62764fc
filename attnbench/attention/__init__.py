"""What the file of a mechanism imports: `from attnbench import attention as at`.

    contract, heads, card    `at.QKVAttention`, `at.Card`: what every mechanism has
    autograd                 what every backward pass written by hand is
    primitives, convolution  operations that mechanisms share
    recurrence, decays       recurrences with a matrix as state, and what decays in them
    selection                attention to chosen blocks of keys
    caches, flex             states of keys and values; windows by torch's flex_attention

Loads torch.
"""

from attnbench.attention.card import Card, Cost, Exemption, Paper, Tolerance
from attnbench.attention.contract import (
    NO_SEPARATE_CORE,
    Attention,
    BaseConfig,
    CachedAttention,
    CoreAttention,
    Draws,
    Flops,
    InChunks,
    Projections,
    QKVAttention,
    Recurrent,
    State,
    each_alone,
    merge,
    projection_flops,
    projection_parameters,
)
from attnbench.attention.heads import OwnHeads
from attnbench.attention.kernels import caches, flex, selection
from attnbench.attention.kernels.autograd import Once, Written, differentiated, lowered, recomputed
from attnbench.attention.kernels.caches import Cache, Piece
from attnbench.attention.kernels.convolution import Convolved, RecurrentState, random_taps
from attnbench.attention.kernels.decays import FADING_BLOCK, Fading, decay_rates, fading_width
from attnbench.attention.kernels.primitives import (
    ByQueries,
    Kernel,
    Picked,
    UnitNorm,
    additive,
    allowed_keys,
    biased_attention,
    causal_mask,
    further_columns,
    fused_attention,
    fused_biased_attention,
    fused_kernel,
    fused_pairs,
    gather_tokens,
    key_mask,
    logits_at_once,
    masked_softmax,
    ordered,
    padded_mask,
    part_elements,
    row_numbers,
    row_sums,
    signed_argmax,
    softmax_attention,
    sum_flops,
    sum_rule,
    widen,
)
from attnbench.attention.kernels.recurrence import (
    IN_TURN,
    UNROLLED,
    decay_flops,
    decay_rule,
    delta_flops,
    delta_rule,
    dplr_flops,
    dplr_rule,
    row_decay_flops,
)
from attnbench.attention.kernels.selection import (
    Choosing,
    ChosenState,
    allowed_tokens,
    block_means,
    choose,
    chosen_flops,
    read_allowed,
    read_chosen,
    read_next,
    real_blocks,
    scored,
    top_blocks,
)
from attnbench.records import Causality, Family, Level, Workload
