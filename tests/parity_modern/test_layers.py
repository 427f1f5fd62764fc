"""Forms of ours against layers of today's models, with their weights: outputs and gradients."""

from dataclasses import replace

import pytest
import torch

from attnbench.catalogue.registry import card
from attnbench.records import Causality, Level, Workload

D, H, N = 32, 4, 70
TOLERANCE = 1e-5  # of the largest number
W = Workload(batch=2, seq_len=N, width=D, heads=H, level=Level.ATTENTION, causal=True)
LAYERS = (
    ("fnet", "transformers", {}),
    ("gated_delta_net", "transformers", {"expand": 1}),
    ("gated_delta_net", "transformers", {"expand": 2}),
    ("mamba2", "transformers", {"head_width": 16, "state": 12, "groups": 1, "chunk": 32}),
    ("mamba2", "transformers", {"head_width": 16, "state": 12, "groups": 2, "chunk": 16}),
    ("latent", "transformers", {"kv_rank": 10, "rope": 6}),
    ("latent", "transformers", {"kv_rank": 10, "rope": 6, "query_rank": 12}),
    ("grouped_query", "transformers", {"kv_heads": 2}),
    ("sliding_window", "transformers", {"window": 9, "kv_heads": 2}),
    # with five heads, both have the same decays
    ("retention", "yet_another_retnet", {"chunk": 16}),
    ("retention", "yet_another_retnet", {"chunk": 64}),
)
pytestmark = pytest.mark.filterwarnings("ignore")


def forms(name):
    """The forms that are ours and need no compiler."""
    return [form for form in card(name).own_forms if not card(name).forms[form].compiles]


def cases():
    for name, package, options in LAYERS:
        for form in forms(name):
            label = "-".join(f"{key}{value}" for key, value in options.items())
            yield pytest.param(name, package, form, options, id=f"{name}-{form}-{label}")


def compare(*modules):
    """Outputs and gradients of x, of two modules on random tokens."""
    torch.manual_seed(1)
    x, weights = torch.randn(2, W.batch, N, modules[0].width)
    results = []
    for attention in modules:
        given = x.clone().requires_grad_()
        y = attention(given)
        results.append((y, torch.autograd.grad((y * weights).sum(), given)[0]))
    for a, b in zip(*results, strict=True):
        assert (a - b).abs().max() <= TOLERANCE * b.abs().max()


@pytest.mark.parametrize(("name", "package", "form", "options"), [*cases()])
def test_a_form_of_ours_computes_what_the_layer_computes(name, package, form, options):
    mechanism = card(name)
    config = mechanism.config(**options)
    w = replace(W, causal=mechanism.causality is not Causality.NEVER)
    if name == "retention":
        w = replace(w, width=40, heads=5)
    if reason := mechanism.refusal(package, config, w) or mechanism.refusal(form, config, w):
        pytest.skip(reason)
    torch.manual_seed(0)
    theirs, ours = (mechanism.forms[kind](config, w) for kind in (package, form))
    for parameter in theirs.parameters():
        if parameter.dim() == 1:
            torch.nn.init.uniform_(parameter, -1, 1)
    ours.load_state_dict(theirs.state_dict())
    compare(ours, theirs)


def test_a_window_of_mistral_counts_the_token_itself():
    from transformers.masking_utils import sliding_window_causal_mask_function

    usable = sliding_window_causal_mask_function(9)
    i = torch.arange(N)
    mechanism = card("sliding_window")
    theirs = mechanism.forms["transformers"](mechanism.config(window=9), W).theirs
    assert theirs.band.equal(usable(0, 0, i[:, None], i[None]))


@pytest.mark.parametrize("form", forms("sliding_window"))
def test_sink_logits_of_gpt_oss(form):
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssConfig

    config = GptOssConfig(
        hidden_size=D,
        num_attention_heads=H,
        num_key_value_heads=2,
        head_dim=D // H,
        sliding_window=9,
        num_hidden_layers=1,
        layer_types=["sliding_attention"],
        attention_bias=False,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    theirs = GptOssAttention(config, 0)
    torch.nn.init.normal_(theirs.sinks)
    mechanism = card("sliding_window")
    options = mechanism.config(window=9, kv_heads=2, sink_logit=True)
    ours = mechanism.forms[form](options, W)
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
    for name, their in names.items():
        setattr(ours, name, getattr(theirs, their))
    ours.sink = theirs.sinks
    i = torch.arange(N)
    hidden = (i > i[:, None]) | (i[:, None] - i >= 9)
    bias = torch.zeros(1, 1, N, N).masked_fill(hidden, torch.finfo(torch.float32).min)
    width = D // H // 2  # it rotates halves by as many angles
    rotation = torch.ones(W.batch, N, width), torch.zeros(W.batch, N, width)
    compare(ours, lambda x: theirs(x, rotation, bias)[0])
