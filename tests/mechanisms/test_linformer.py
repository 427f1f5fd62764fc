"""Linformer: sharing and shorter inputs."""

import pytest
import torch

from attnbench.mechanisms.linformer import CARD
from tests.mechanisms.building import build

N = 12


def tokens(seq_len=N):
    return torch.randn(2, seq_len, 16, generator=torch.Generator().manual_seed(1)).double()


def test_one_projection_for_keys_and_values_is_two_equal_ones():
    shared = build("linformer", seq_len=N, rank=3, sharing="key_value")
    apart = build("linformer", seq_len=N, rank=3)
    apart.load_state_dict({**shared.state_dict(), "F": shared.E.detach()})
    torch.testing.assert_close(apart(tokens()), shared(tokens()))


def test_each_head_has_separate_projections():
    shared = build("linformer", seq_len=N, rank=3)
    own = build("linformer", seq_len=N, rank=3, sharing="none")
    heads = {name: shared.state_dict()[name].expand(4, -1, -1).clone() for name in "EF"}
    own.load_state_dict({**shared.state_dict(), **heads})
    torch.testing.assert_close(own(tokens()), shared(tokens()))
    with torch.no_grad():
        own.F[2] += 1
    core = (own(tokens()) - shared(tokens())) @ own.output.weight.inverse().T
    changed = core.unflatten(-1, (4, 4)).abs().amax((0, 1, 3)) > 1e-9
    assert changed.tolist() == [False, False, True, False]


@pytest.mark.parametrize("form", CARD.own_forms)
def test_shorter_inputs_use_the_first_columns(form):
    module = build("linformer", form, seq_len=N, rank=3, n_max=20, bias=True)
    short = build("linformer", form, seq_len=N, rank=3, bias=True)
    state = module.state_dict()
    short.load_state_dict({**state, "E": state["E"][:, :N], "F": state["F"][:, :N]})
    torch.testing.assert_close(module(tokens()), short(tokens()))
