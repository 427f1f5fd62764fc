"""The form `compiled` computes what `eager` computes, as one graph, and says where it cannot.

Three mechanisms are captured as a graph that runs as torch's operators. Marked `long`, all are, and
one is compiled in full; marked `faults`, all are compiled.
"""

from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from torch._dynamo.utils import counters

from attnbench.attention.checks.equations import against_its_reference
from attnbench.attention.checks.trial import (
    Trial,
    core_inputs,
    same_draws,
    some_padding,
    tokens,
    trials,
    workload,
)
from attnbench.devices.finding import find
from attnbench.mechanisms.catalogue import compiled, registry
from attnbench.mechanisms.catalogue.compiled import with_compiled
from attnbench.records import Level, Mode

# torch warns of its own code while it compiles
WARNINGS = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
pytestmark = [WARNINGS, pytest.mark.usefixtures("afresh")]

NO_COMPILER = find("cpu").cannot_compile()
CODE = pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
# sums alone; random numbers and sorted blocks; buffers and a loss that the forward pass writes
USUAL = ("fastformer", "sinkhorn", "routing_transformer")
COMPILED = [
    (name, label, trial)
    for name in registry.names()
    for label, trial in trials(registry.card(name), compiles=True)
    if trial.form == "compiled"
]


def examples(usual=USUAL, rest=pytest.mark.long, level=Level.ATTENTION):
    """The first example of each mechanism, full and causal, marked `rest` where it is not usual."""
    for name, label, trial in COMPILED:
        w = replace(trial.workload(23), level=level)
        if label.startswith("0-") and trial.refusal(w) is None:
            yield pytest.param(trial, id=f"{name}-{label}", marks=() if name in usual else rest)


FIRST = [*examples()]
FEW = [*examples(USUAL[:2])]
CORES = [*examples(USUAL[:2], level=Level.CORE)]
FULL = [*examples(USUAL[:1], rest=pytest.mark.faults)]


@pytest.fixture
def captured(monkeypatch):
    """Graphs are captured as a whole, and run as torch's operators."""
    capture = partial(torch.compile, backend="eager", dynamic=False, fullgraph=True)
    monkeypatch.setattr(compiled, "kernel", cache(capture))


def both(trial, w, dtype=torch.float64):
    """The compiled module, and the eager one with the same parameters."""
    module, plain = trial.build(w, dtype), trial.build(w, dtype, form="eager")
    plain.load_state_dict(module.state_dict())
    return module, plain


def gradients(module, x, mask):
    """The output of real tokens and all gradients of a training step."""
    x = x.clone().requires_grad_()
    y = same_draws(module, x, mask)
    y = y if mask is None else y[mask]
    loss = (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum()
    if (extra := module.auxiliary_loss()) is not None:
        loss = loss + extra
    named = {"x": x, **dict(module.named_parameters())}
    found = torch.autograd.grad(loss, [*named.values()], allow_unused=True)
    return {"y": y.detach(), **dict(zip(named, found, strict=True))}


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("trial", FIRST)
@pytest.mark.parametrize("training", [pytest.param(False, marks=pytest.mark.long), True])
def test_one_graph_gives_the_outputs_and_gradients_of_eager(trial, training):
    """In evaluation of sequences without padding, and in training of padded ones."""
    w = trial.workload(23)
    module, plain = both(trial, w)
    mask = some_padding(w) if training else None
    found = gradients(module.train(training), tokens(w), mask)
    expected = gradients(plain.train(training), tokens(w), mask)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-11, msg=name.__add__)


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("trial", FEW)
@pytest.mark.parametrize("training", [pytest.param(False, marks=pytest.mark.faults), True])
def test_neither_a_second_call_nor_a_second_layer_is_compiled_again(trial, training):
    w = trial.workload(23)
    layers = [trial.build(w).train(training) for _ in range(2)]
    before = counters["stats"]["unique_graphs"]
    for layer in 2 * layers:
        gradients(layer, tokens(w), None)
    assert counters["stats"]["unique_graphs"] == before + 1


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("trial", CORES)
def test_a_core_is_compiled_too(trial):
    w = replace(trial.workload(23), level=Level.CORE)
    module, plain = both(trial, w)
    before = counters["stats"]["unique_graphs"]
    o = same_draws(module.attend, *core_inputs(module, w), some_padding(w))
    assert counters["stats"]["unique_graphs"] == before + 1
    torch.testing.assert_close(o, same_draws(plain.attend, *core_inputs(plain, w), some_padding(w)))


@CODE
@pytest.mark.long
@pytest.mark.parametrize("trial", FULL)
def test_generated_code_computes_the_equations_in_every_type(trial):
    padded = replace(trial.workload(23), mode=Mode.TRAINING, padding=0.3)
    against_its_reference(trial, 23, masked=trial.refusal(padded) is None)


@pytest.mark.usefixtures("captured")
def test_a_graph_with_a_break_is_refused_and_does_not_run_as_written():
    class Broken(registry.card("local").forms["eager"]):
        def attend(self, q, k, v, mask):
            return q * (2 if q.sum() > 0 else 1)

    card = registry.card("local")
    broken = with_compiled(replace(card, forms={"eager": Broken}))
    module = Trial(broken, card.config(), "compiled", False).build(workload(8, 1, False))
    with pytest.raises(Exception, match="Data-dependent"):
        module(tokens(workload(8, 1, False)))


def test_a_card_says_why_it_has_no_compiled_form():
    card = replace(registry.card("local"), uncompiled=lambda config, w: "it reads a clock")
    card = with_compiled(replace(card, forms={"eager": card.forms["eager"]}))
    w = workload(8, 1, False)
    assert card.refusal("compiled", card.config(), w) == "it reads a clock"
    assert card.refusal("eager", card.config(), w) is None


def test_without_a_compiler_the_reason_names_it(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    card = registry.card("local")
    for form in ("compiled", "flex"):
        reason = card.refusal(form, card.config(), replace(workload(8, 1, False), dtype="float32"))
        assert reason == (
            "torch.compile needs a C++ compiler: install no-such-compiler, or name another one in"
            " CXX"
        )
    assert card.refusal("eager", card.config(), workload(8, 1, False)) is None


def test_a_card_keeps_a_compiled_form_of_its_own():
    card = registry.card("local")
    assert with_compiled(card) is card
    assert registry.card("local").forms["compiled"] is card.forms["compiled"]
