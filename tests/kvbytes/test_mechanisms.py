"""Which mechanism computes each kind of layer, beside the layers of transformers themselves."""

import json
from functools import partial

import pytest
import torch

from attnbench.catalogue.registry import card
from attnbench.kvbytes.context import ContextQuery, Layer, rows
from attnbench.kvbytes.layers import layers
from attnbench.kvbytes.mechanisms import fields, measurable
from attnbench.records import Level, Mode, Selection, Workload
from attnbench.verify.flops import counted_flops
from tests.kvbytes.test_layers import FAMILIES, SMALL, caches

LENGTH = 37
# how the names of their classes end
SUBLAYERS = ("Attention", "DeltaNet", "Mixer", "MambaLayer")
# kinds of layer that no mechanism computes, by what their reason says
ABSENT = {
    "deepseek_v4": "gated pools",
    "falcon_mamba": "Mamba-1",
    "mamba": "Mamba-1",
    "jamba": "Mamba-1",
    "lfm2": "convolution alone",
    "llama4_text": "causal chunks",
    "gemma3n_text": "earlier layer",
    "gemma4_text": "keys that are its values",
    "glm_moe_dsa": "index of an earlier layer",
}
OF_ONE_WIDTH = {"v_head_dim": 8}  # in place of the 12 of these configurations
LATENTS = (
    *("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "kimi_linear"),
)


def written(kind, tmp_path, **more):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**SMALL, **FAMILIES[kind], "model_type": kind, **more}))
    return file


def built(kind, found):
    """The module of a kind of layer, the config of its mechanism and the workload of a step."""
    chosen = Selection.read(kind.mechanism)
    mechanism = card(chosen.name)
    config = mechanism.configure(dict(chosen.options))
    w = config.sized(
        Workload(
            batch=1,
            seq_len=LENGTH,
            width=found.width,
            heads=found.heads,
            level=Level.ATTENTION,
            mode=Mode("decode"),
            causal=True,
        )
    )
    form = mechanism.default_form(config, w)
    assert mechanism.refusal(form, config, w) is None
    return mechanism.forms[form](config, w), config, w


def weights(module):
    """The elements of all matrices and filters, without biases, scales and rates."""
    drawn = (buffer for name, buffer in module.named_buffers() if name.startswith("drawn"))
    return sum(p.numel() for p in (*module.parameters(), *drawn) if p.squeeze().dim() > 1)


@caches
@pytest.mark.parametrize(
    ("kind", "more"),
    [(kind, {}) for kind in FAMILIES if kind not in LATENTS]
    + [(kind, OF_ONE_WIDTH) for kind in LATENTS],
)
def test_a_mechanism_has_the_weights_of_the_layer_and_keeps_its_bytes(kind, more, tmp_path):
    from transformers import AutoConfig, AutoModel

    file = written(kind, tmp_path, **more)
    found = measurable(file)
    own = {layer.kind: i for i, (_, layer) in reversed([*enumerate(layers(fields(file)))])}
    sizes = {**SMALL, **FAMILIES[kind], **more, "model_type": kind}
    with torch.device("meta"):
        theirs = AutoModel.from_config(AutoConfig.for_model(**sizes))
    absent = [one.reason for one in found.kinds if not one.mechanism and one.parts]
    assert all(ABSENT[kind] in reason for reason in absent)
    for one in found.kinds:
        if not one.mechanism:
            continue
        layer = theirs.layers[own[one.words]]
        (attention,) = [
            part for part in layer.children() if type(part).__name__.endswith(SUBLAYERS)
        ]
        module, config, w = built(one, found)
        assert weights(module) == weights(attention), one
        # of a window, attnbench keeps the last token too, which is the query itself
        parts = [
            part._replace(max_entries=part.max_entries + 1) if "sliding" in one.words else part
            for part in one.parts
        ]
        query = ContextQuery(lengths=(LENGTH,), item_bytes=4)
        kept = rows([Layer(one.words, tuple(parts), None)], query)[0].at[0]
        assert 4 * module.state_elements(config, w) == kept, one


def test_sizes_that_no_mechanism_has_are_said(tmp_path):
    (only,) = measurable(written("deepseek_v3", tmp_path)).kinds
    assert (only.mechanism, only.layers) == ("", 4)
    assert only.reason == "heads of values are 12 wide, of keys 8; latent has one width"


@pytest.mark.parametrize(
    "kind",
    [
        *("qwen3_next", "kimi_linear", "gpt_oss", "minimax", "nemotron_h"),
        *("gemma3_text", "cohere2", "olmo_hybrid", "granitemoehybrid", "deepseek_v3"),
    ],
)
def test_the_flops_of_a_step_are_those_that_torch_counts(kind, tmp_path):
    found = measurable(written(kind, tmp_path, **(OF_ONE_WIDTH if kind in LATENTS else {})))
    for one in (each for each in found.kinds if each.mechanism):
        module, config, w = built(one, found)
        x = torch.randn(1, LENGTH, found.width)
        with torch.no_grad():
            _, state = module.prefill(x[:, :-1], module.start(1, LENGTH))
        counted = counted_flops(module, x[:, -1:], call=partial(module.step, state=state))
        declared = module.step_flops(config, w)
        assert declared.projections + declared.core == counted, one
