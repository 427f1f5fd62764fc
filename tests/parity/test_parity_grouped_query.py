"""Grouped queries with a gate against Qwen3-Next; sinks against gpt-oss; windows of Mistral."""

import pytest
import torch

from attnbench.mechanisms import grouped_query, sliding_window
from attnbench.records import Level, Workload
from tests.oracles import build

D, H, N, WINDOW = 32, 4, 70, 9
W = Workload(batch=2, seq_len=N, width=D, heads=H, level=Level.ATTENTION, causal=True)
GROUPED, WINDOWED = grouped_query.CARD.forms, sliding_window.CARD.forms
FORMS = ("eager", "sdpa", "repeat")
SIZES = {
    "hidden_size": D,
    "num_attention_heads": H,
    "num_key_value_heads": 2,
    "head_dim": D // H,
    "num_hidden_layers": 1,
    "layer_types": ["full_attention"],
    "attention_bias": False,
    "attn_implementation": "eager",
}
pytestmark = pytest.mark.filterwarnings("ignore")


def compare(ours, theirs, width, window=N):
    """Outputs and gradients of x, by layers on the same parameters; `width` numbers are rotated."""
    ours.key, ours.value, ours.output = theirs.k_proj, theirs.v_proj, theirs.o_proj
    usable = torch.ones(N, N, dtype=torch.bool).tril().triu(1 - window)
    bias = torch.zeros(1, 1, N, N).masked_fill(~usable, torch.finfo(torch.float32).min)
    rotation = torch.ones(W.batch, N, width), torch.zeros(W.batch, N, width)
    x, results = torch.randn(W.batch, N, D, requires_grad=True), []
    for y in (ours(x), theirs(x, rotation, bias)[0]):
        results.append((y, *torch.autograd.grad(y.square().sum(), x)))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_a_gate_is_that_of_qwen3_next(form):
    public = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    torch.manual_seed(0)
    theirs = public.Qwen3NextAttention(public.Qwen3NextConfig(**SIZES), 0)
    theirs.q_norm = theirs.k_norm = torch.nn.Identity()
    ours = GROUPED[form](grouped_query.Config(kv_heads=2, gate=True), W)
    # the rows of W_Q of a head come before those of its gate
    rows = theirs.q_proj.weight.data.unflatten(0, (H, 2, -1))
    ours.query.weight.data, ours.gate.weight.data = (rows[:, i].flatten(0, 1) for i in (0, 1))
    compare(ours, theirs, D // H)


@pytest.mark.parametrize(
    ("form", "window"),
    [*((form, N) for form in FORMS), *((form, WINDOW) for form in ("eager", "masked", "blocked"))],
)
def test_sink_logits_are_those_of_gpt_oss(form, window):
    public = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    options, sizes = {"kv_heads": 2, "sink_logit": True}, SIZES
    if window < N:
        sizes = SIZES | {"sliding_window": window, "layer_types": ["sliding_attention"]}
        ours = WINDOWED[form](sliding_window.Config(window=window, **options), W)
    else:
        ours = GROUPED[form](grouped_query.Config(**options), W)
    torch.manual_seed(0)
    theirs = public.GptOssAttention(public.GptOssConfig(**sizes), 0)
    torch.nn.init.normal_(theirs.sinks)
    ours.query, ours.sink = theirs.q_proj, theirs.sinks
    compare(ours, theirs, D // H // 2, window)  # it rotates halves by as many angles


def test_a_window_of_mistral_counts_the_token_itself():
    config = sliding_window.Config(window=WINDOW)
    theirs = build("sliding_window", "transformers", config, W).package_layer
    from transformers.masking_utils import sliding_window_causal_mask_function

    usable = sliding_window_causal_mask_function(WINDOW)
    i = torch.arange(N)
    assert theirs.band.equal(usable(0, 0, i[:, None], i[None]))
