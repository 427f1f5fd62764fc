"""Linformer: equality with softmax attention, sharing and shorter inputs."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from attnbench.mechanisms.linformer import CARD, Absorbed, Config, Folded, Linformer
from attnbench.mechanisms.transformer import Transformer
from attnbench.records import Level, Workload

N = 12


def workload(seq_len=N, **sizes):
    return Workload(batch=2, seq_len=seq_len, width=16, heads=4, level=Level.ATTENTION, **sizes)


def built(form, config, w=None):
    torch.manual_seed(0)
    return form(config, w or workload()).double().eval()


def tokens(seq_len=N):
    return torch.randn(2, seq_len, 16, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize("form", [Linformer, Folded, Absorbed])
def test_with_identity_projections_of_full_rank_it_is_softmax_attention(form):
    module = built(form, Config(rank=N))
    with torch.no_grad():
        nn.init.eye_(module.E)
        nn.init.eye_(module.F)
    softmax = Transformer(Config(), workload()).double()
    softmax.load_state_dict(module.state_dict(), strict=False)
    torch.testing.assert_close(module(tokens()), softmax(tokens()))


def test_one_projection_for_keys_and_values_is_two_equal_ones():
    shared = built(Linformer, Config(rank=3, sharing="key_value"))
    apart = built(Linformer, Config(rank=3))
    apart.load_state_dict({**shared.state_dict(), "F": shared.E.detach()})
    torch.testing.assert_close(apart(tokens()), shared(tokens()))


def test_each_head_has_separate_projections():
    shared = built(Linformer, Config(rank=3))
    own = built(Linformer, Config(rank=3, sharing="none"))
    heads = {name: shared.state_dict()[name].expand(4, -1, -1).clone() for name in "EF"}
    own.load_state_dict({**shared.state_dict(), **heads})
    torch.testing.assert_close(own(tokens()), shared(tokens()))
    with torch.no_grad():
        own.F[2] += 1
    core = (own(tokens()) - shared(tokens())) @ own.output.weight.inverse().T
    changed = core.unflatten(-1, (4, 4)).abs().amax((0, 1, 3)) > 1e-9
    assert changed.tolist() == [False, False, True, False]


@pytest.mark.parametrize("form", [Linformer, Folded, Absorbed])
def test_shorter_inputs_use_the_first_columns(form):
    module = built(form, Config(rank=3, n_max=20, bias=True))
    short = built(form, Config(rank=3, bias=True))
    state = module.state_dict()
    short.load_state_dict({**state, "E": state["E"][:, :N], "F": state["F"][:, :N]})
    torch.testing.assert_close(module(tokens()), short(tokens()))


def test_the_default_form_folds_where_that_is_less_work():
    small, large = Config(rank=16), Config(rank=64)
    w = Workload(batch=1, seq_len=2048, level=Level.ATTENTION)
    assert CARD.default(small, w) == "absorbed"
    assert CARD.default(large, w) == "folded"
    assert CARD.default(small, replace(w, seq_len=128)) == "folded"
    assert CARD.default(Config(), replace(w, seq_len=128)) == "eager"
    assert CARD.default(replace(small, sharing="none"), w) == "eager"
    assert CARD.default(small, replace(w, level=Level.CORE)) == "eager"
    work = {name: sum(vars(form.flops(small, w)).values()) for name, form in CARD.forms.items()}
    assert min(work, key=work.get) == "absorbed"
