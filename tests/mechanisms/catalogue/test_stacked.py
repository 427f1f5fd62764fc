"""Stacks: their names, the contract, order and sums of their layers, and what is refused."""

from collections import Counter
from dataclasses import asdict, replace

import pytest
import torch

from attnbench.attention.checks import checks
from attnbench.attention.checks.trial import Trial
from attnbench.attention.classifier import Classifier
from attnbench.commands.check.against import repository_name
from attnbench.errors import UnknownOption, UsageError
from attnbench.measuring.cards import Cards
from attnbench.measuring.planner import plan
from attnbench.measuring.worker import Worker
from attnbench.mechanisms.catalogue.presets import expand, preset
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Mode, Selection, Shell, Workload
from attnbench.records.selection import layers, parts
from attnbench.report.styles import labels
from attnbench.running.request.options import read
from attnbench.running.request.requests import request
from tests.measuring.cases import case
from tests.sweeps import sweep

HYBRID = "stack(3*gated_delta_net+grouped_query[kv_heads=2])"
W = Workload(batch=2, seq_len=24, width=16, heads=4, level=Level.ATTENTION, causal=True)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("stack(local+local+fnet)", "stack(2*local+fnet)"),
        ("stack( 2 * local + etc )", "stack(2*local+etc)"),
        ("stack(linformer:eager[rank=4,bias=true])", "stack(linformer:eager[bias=True,rank=4])"),
        ("stack(synth*+a (b)/m.py:A[x=1])", "stack(synthesizer+a (b)/m.py:A[x=1])"),
        ("stack(@table5)",
         "stack(transformer+sparse_transformer+longformer+bigbird+smart_bird)"),
    ],
)  # fmt: skip
def test_a_stack_is_named_after_its_layers(text, name):
    (chosen,) = expand(text)
    assert chosen == Selection(name=name) == Selection.read(name)
    assert expand(name) == (chosen,)


def test_lists_and_labels_leave_stacks_whole():
    texts = ["stack(a[x=1,y=2]+2*stack(b,c))", "d:e[f=g,h=1]"]
    assert parts(",".join(texts), "--models") == texts
    name = f"{HYBRID}:mixed"
    assert labels([name]) == {name: "3 × Gated DeltaNet + Grouped-query"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stack()", "has no layers; write stack"),
        ("stack(local++fnet)", "has an empty part"),
        ("stack(0*local)", "has a layer 0 times, or has over 1000"),
        ("stack(999*local+2*fnet)", "has a layer 0 times, or has over 1000"),
        ("stack(local+stack(fnet))", "has a stack as a layer; write its layers"),
        ("stack(lcoal)", "unknown mechanism 'lcoal'; did you mean local"),
        ("stack(local", "unknown mechanism"),
        ("stack(@nothing)", "unknown group"),
        ("stack(local:fused)", "local has no form 'fused'; forms: eager"),
        ("stack(local[rank=1])", "local: no option 'rank'"),
        ("stack(fnet+transformer_xl)", "transformer_xl is always causal and fnet never"),
    ],
)
def test_what_is_no_stack_or_layer_is_refused(text, says):
    with pytest.raises(UsageError, match=says):
        card(expand(text)[0].name)


def test_parameters_products_and_states_are_as_declared_and_steps_continue_the_pass():
    trial = Trial(card(HYBRID), card(HYBRID).config(), "mixed", True)
    checks.declared_parameters_are_those_of_the_module(trial)
    checks.declared_flops_are_those_that_torch_counts(trial)
    checks.declared_flops_of_a_step_are_those_that_torch_counts(trial)
    checks.steps_continue_the_causal_pass(trial, [torch.float64])


def test_the_losses_of_layers_add_up():
    stack = card("stack(2*smart_bird[keys=4])")
    module = stack.forms["eager"](stack.config(), replace(W, causal=False))
    module(torch.randn(2, 24, 16))
    assert module.auxiliary_loss() == sum(layer.auxiliary_loss() for layer in module.layers)


def test_each_layer_has_its_usual_form_and_no_option_is_the_stacks():
    stack = card(HYBRID)
    assert {"eager", "compiled", "mixed"} <= stack.forms.keys()
    kinds = [type(layer).__name__ for layer in stack.forms["mixed"](stack.config(), W).stacked]
    assert kinds == ["Chunked"] * 3 + ["Sdpa"]
    with pytest.raises(UnknownOption, match="no option 'bias'"):
        stack.configure({"bias": True})


def test_a_model_repeats_the_layers_in_order():
    shell = Shell(layers=4, vocabulary=9, classes=3)
    w = replace(W, level=Level.MODEL, shell=shell)
    stack = card("stack(local+transformer)")
    model = Classifier(stack, "eager", stack.config(), w)
    kinds = [type(layer.attention).__name__ for layer in model.layers]
    assert kinds == ["Local", "Transformer"] * 2
    assert len({id(layer.attention) for layer in model.layers}) == 4
    uneven = replace(w, shell=replace(shell, layers=3))
    assert "3 layers are not a multiple of the 2" in stack.refusal("mixed", stack.config(), uneven)
    assert model(torch.zeros(2, 24, dtype=torch.long)).shape == (2, 3)


def asked(**more):
    return replace(sweep(["local"]).request, lengths=(32,), width=16, heads=4, **more)


@pytest.mark.parametrize("level", [Level.ATTENTION, Level.MODEL])
def test_a_plan_has_the_work_and_the_series_of_the_layers(level):
    requested = asked(level=level, layers=4, modes=(Mode.INFERENCE,), causal=True)
    chosen = [*map(Selection.read, ("gated_delta_net", "grouped_query[kv_heads=2]", HYBRID))]
    first, second, stack = (next(iter(plan(one, requested))) for one in chosen)
    assert Counter(stack.layers) == {first.case.series: 3, second.case.series: 1}
    of_series = 4 if level is Level.MODEL else 1  # of their own, in each of the two
    pairs = zip(counts(first), counts(second), strict=True)
    assert counts(stack) == [(3 * a + b) // of_series for a, b in pairs]
    assert stack.shell_flops == first.shell_flops


def counts(planned):
    return [planned.projection_flops, planned.core_flops]


def test_a_stack_with_a_layer_that_cannot_decode_says_so():
    requested = asked(level=Level.ATTENTION, modes=(Mode.DECODE,))
    (planned,) = plan(Selection.read("stack(local+fastformer)"), requested)
    assert planned.refusal.startswith("cannot decode: fastformer: ")


def test_layers_have_the_options_of_the_preset():
    (chosen,) = expand("stack(local+grouped_query)", preset("llama"))
    assert chosen.name == "stack(local+grouped_query[kv_heads=8])"
    (chosen,) = expand("stack(grouped_query[kv_heads=1])", preset("llama"))
    assert dict(layers(chosen.name)[0].options) == {"kv_heads": 1}


def test_a_model_has_layers_for_every_stack():
    three = {"models": "local,stack(2*local+fnet)", "device": "cpu"}
    assert request(read(three)).layers == 6
    assert request(read({**three, "layers": 9})).layers == 9
    assert request(read({**three, "level": "attention"})).layers == 2


@pytest.mark.parametrize("mode", Mode)
def test_a_process_measures_a_stack(mode):
    worker, one = Worker(None, seed=0), case(HYBRID, "mixed", mode=mode, causal=True)
    assert worker.answer("build", **asdict(one), suspicious=True)["outcome"] == "ok"
    assert not {"odd", "suspect", "changed"} & worker.answer("finish")["notes"].keys()
    weighed = worker.answer("measure_memory", **asdict(one))
    assert weighed["values"]["error"] < 1e-5
    if mode == "decode":
        declared = card(HYBRID).forms["mixed"].state_elements(card(HYBRID).config(), one.workload)
        assert weighed["values"]["state_bytes"] == 4 * declared


def test_a_check_finds_the_layers_of_each_tree(tmp_path):
    (tmp_path / "m.py").write_text("from attnbench.mechanisms.local import CARD as MINE\n")
    name = repository_name("stack(2*m.py:MINE+local)", tmp_path, tmp_path.parent)
    assert name == f"stack(2*{tmp_path.name}/m.py:MINE+local)"
    assert "mixed" in Cards(tmp_path.parent, own_only=False).find(name).forms
