import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from attnbench.attention.classifier import Classifier, attention_sets, shell_flops, shell_parameters
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Shell, Workload

SHELL = Shell(vocabulary=60, classes=7, layers=3, dropout=0.0)
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


def test_layers_of_fastformer_share_attention_alone():
    layers = build("fastformer").layers
    assert len({id(layer.attention) for layer in layers}) == 1
    assert len({id(layer.feed_forward) for layer in layers}) == 3


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
