"""The package's own code shows no odd behaviour: sweeps look for it in that of others alone."""

import pytest
import torch

from attnbench.measuring.worker import Worker
from attnbench.mechanisms.catalogue.registry import built_in, card
from attnbench.records import Causality, Mode
from attnbench.records.modes import find
from tests.measuring.cases import answered, case, sent

SIZES = {"seq_len": 64, "width": 32}


def cases():
    """Every form of every mechanism and mode that runs without another package or a compiler.

    Those that are not the default are long.
    """
    for name in sorted(built_in()):
        found = card(name)
        config = found.config()
        for form, module in found.forms.items():
            for mode in Mode:
                causal = find(mode).steps or found.causality is Causality.ALWAYS
                one = case(name, form, found.options(config), mode=mode, causal=causal, **SIZES)
                refused = found.refusal(form, config, one.workload)
                if not (refused or module.package or module.compiles):
                    default = form == found.default_form(config, one.workload)
                    marks = () if default else pytest.mark.long
                    yield pytest.param(one, id=f"{name}-{form}-{mode}", marks=marks)


@pytest.fixture(scope="module")
def worker():
    return Worker(None, seed=0)


@pytest.mark.parametrize("one", list(cases()))
def test_own_code_is_not_odd(worker, one):
    answered(worker, "build", suspicious=True, inputs_seed=1, **sent(one))
    answered(worker, "lap", iterations=1)
    found = answered(worker, "finish")
    assert not {"odd", "suspect"} & found["notes"].keys(), found
    assert not found["notes"].get("changed")
    assert torch.is_grad_enabled()
