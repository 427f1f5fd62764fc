"""Every form that a package computes, against this package's with the same parameters.

A form that departs from the equations is only run here; where parts of it agree, the other files of
this folder compare them. A package that is not installed is skipped with that reason.
"""

from dataclasses import replace
from itertools import product

import pytest
import torch

from attnbench.attention.checks.equations import compare, values
from attnbench.attention.checks.flops import counted_flops
from attnbench.attention.checks.trial import some_padding, tokens, workload
from attnbench.mechanisms.catalogue.registry import names
from tests.oracles import FORMS, build, card, pair

# options that packages need, beside those of the cards' examples
OPTIONS = {
    "bigbird": ({"block": 4, "global_tokens": 8, "random_tokens": 4},),
    "latent": ({"kv_rank": 10, "rope": 6, "query_rank": 12},),
    "linformer": ({"rank": 6, "n_max": 80},),
    "nystromformer": ({"landmarks": 6, "iterations": 40, "conv_kernel": 33},),
    "performer": ({"features": 7, "kernel": "relu"},),
    "reformer": ({"chunk": 4, "rounds": 2},),
    "routing_transformer": ({"members": 8, "clusters": None},),
    "sinkhorn": ({"block": 4},),
    "sliding_window": ({"window": 9, "kv_heads": 2},),
}
LENGTHS = (24, 28, 36, 64)


def packages(chosen):
    """Each mechanism with each form of a package that is chosen by its class."""
    for name in names():
        for form, module in card(name).forms.items():
            if module.package and chosen(module):
                yield pytest.param(name, form, id=f"{name}-{form}")


def oracle(module):
    return module in FORMS.values()


def cases(name, form):
    """Each config and workload that the form takes; a skip with the reason if there is none."""
    tested = card(name)
    configs = [*tested.examples, *(tested.config(**options) for options in OPTIONS.get(name, ()))]
    found, reasons = [], {}
    for config, seq_len, causal, padding in product(configs, LENGTHS, (False, True), (0.0, 0.3)):
        w = replace(workload(seq_len, 2, causal), padding=padding)
        reason = tested.refusal(form, config, w)
        reasons[reason] = None
        found += [(config, w)] * (reason is None)
    if found:
        return found
    missing = [reason for reason in reasons if "installed" in reason or "CPU" in reason]
    assert missing, f"no example of {name} suits {form}: {'; '.join(reasons)}"
    pytest.skip(missing[0])


def one_length_each(found):
    """Of each config, causality and padding one workload, in turns of each length."""
    groups = {}
    for config, w in found:
        groups.setdefault(f"{config} {w.causal} {w.padding}", []).append((config, w))
    return [group[index % len(group)] for index, group in enumerate(groups.values())]


def built(name, form, config, w):
    """The form with the parameters of `eager`, and `eager` itself."""
    theirs, ours = (module.eval() for module in pair(name, (form, "eager"), config, w))
    for parameter in ours.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, std=0.1)
    theirs.load_state_dict(ours.state_dict())
    return theirs, ours


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chosen", [one_length_each, pytest.param(list, marks=pytest.mark.long)])
@pytest.mark.parametrize(("name", "form"), [*packages(lambda module: not module.deviation)])
def test_it_computes_the_mechanisms_function_with_its_parameters(name, form, chosen):
    module = card(name).forms[form]
    for config, w in chosen(cases(name, form)):
        theirs, ours = built(name, form, config, w)
        assert theirs.state_dict().keys() == ours.state_dict().keys()
        mask, x = some_padding(w) if w.padding else None, tokens(w).requires_grad_()
        found, expected = (
            values({"x": x, **dict(m.named_parameters())}, m(x, mask), mask) for m in (theirs, ours)
        )
        label = f"{config}, N = {w.seq_len}, causal={w.causal}, padding={w.padding}"
        compare(found, expected, module.tolerance, label)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "form"), [*packages(lambda module: not oracle(module))])
def test_its_products_are_those_that_it_declares(name, form):
    config, w = cases(name, form)[0]
    w = replace(w, dtype="float32", padding=0.0)
    module = build(name, form, config, w).float()
    counted = counted_flops(module, tokens(w, dtype=torch.float32))
    declared = module.flops(config, w)
    total = declared.projections + declared.core
    assert counted > 0 or total == 0
    assert module.flops_estimated or counted == total
