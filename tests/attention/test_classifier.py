from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from attnbench.attention.classifier import Classifier, attention_sets, shell_flops, shell_parameters
from attnbench.catalogue.registry import card
from attnbench.records import Level, Shell, Workload

SHELL = Shell(vocabulary=60, classes=7, layers=3, feed_forward=24, dropout=0.0)
W = Workload(batch=2, seq_len=21, width=16, heads=4, level=Level.MODEL, shell=SHELL)


def build(name="transformer", form="eager", w=W):
    torch.manual_seed(0)
    tested = card(name)
    return Classifier(tested, form, tested.config(), w)


@pytest.mark.parametrize("name", ["transformer", "fastformer"])
def test_parameters_and_flops_are_as_declared(name):
    tested, model = card(name), build(name).eval()
    sets = attention_sets(tested, SHELL)
    assert sets == (1 if name == "fastformer" else 3)
    counted = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert counted == shell_parameters(W) + sets * tested.parameters(tested.config(), W)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.randint(60, (2, 21)))
    own = tested.forms["eager"].flops(tested.config(), W)
    declared = shell_flops(W) + 3 * (own.projections + own.core)
    assert counter.get_total_flops() == declared


def test_layers_share_attention_as_configured():
    shared = build(w=replace(W, shell=replace(SHELL, share_layers=True)))
    assert len({id(layer.attention) for layer in shared.layers}) == 1
    assert len({id(layer.feed_forward) for layer in shared.layers}) == 3


def test_padding_changes_no_logit():
    model = build().double().eval()
    ids = torch.randint(60, (2, 21))
    mask = torch.arange(21).expand(2, -1) < 13
    other = torch.where(mask, ids, (ids + 1) % 60)
    torch.testing.assert_close(model(ids, mask), model(other, mask))
    assert not torch.allclose(model(ids), model(other))


def test_the_loss_is_cross_entropy_and_reaches_all_but_the_embedding():
    model = build().train()
    ids, labels = torch.randint(60, (2, 21)), torch.tensor([1, 3])
    loss = model.loss(ids, None, labels)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(model(ids), labels))
    loss.backward()
    assert model.embedding.weight.grad is None
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def reversible(name="transformer", layers=3, **shell):
    tested = card(name)
    shell = replace(SHELL, reversible=True, layers=layers, **shell)
    torch.manual_seed(0)
    return Classifier(tested, "eager", tested.examples[0], replace(W, shell=shell)).double().train()


@pytest.mark.parametrize("name", ["transformer", "reformer", "sinkhorn"])
@pytest.mark.parametrize("share", [False, True])
def test_reversible_layers_have_the_gradients_of_autograd(name, share):
    model = reversible(name, dropout=0.3, share_layers=share)
    x = torch.randn(2, 21, 16, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(21).expand(2, -1) < 13
    parameters = list(model.layers.parameters())
    torch.manual_seed(5)
    y = model.reverse(x, mask)
    ours = torch.autograd.grad(y.square().sum(), [x, *parameters])
    after = torch.rand(1)
    torch.manual_seed(5)
    a = b = x
    for layer in model.layers:
        one, two = layer.halves(mask)
        a = a + one(b)
        b = b + two(a)
    theirs = torch.autograd.grad(((a + b) / 2).square().sum(), [x, *parameters])
    torch.testing.assert_close(y, (a + b) / 2)
    torch.testing.assert_close(ours, theirs)
    assert torch.rand(1) == after, "replaying draws leaves the generator where it was"


def test_reversible_layers_keep_no_activations():
    def saved(layers, **shell):
        kept = []
        model = reversible(layers=layers, **shell)
        inside = {p.untyped_storage().data_ptr() for p in model.parameters()}

        def pack(t):
            if t.untyped_storage().data_ptr() not in inside:
                kept.append(t.numel())
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            model.loss(torch.randint(60, (2, 21)), None, torch.tensor([1, 3]))
        return sum(kept)

    assert saved(6) == saved(2)
    plain = build()
    assert not plain.reversible
