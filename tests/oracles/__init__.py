"""Forms that packages of earlier years compute: oracles of equations, and rivals in speed.

They are forms like those of `attnbench.mechanisms.peers`, at most one for each mechanism, and are
named as their packages are imported. `functions` compute part of the mechanism's own class,
`layers` are sub-layers on its parameters, `separate` ones have their own, as they compute another
function, and `plain` ones are published beside kernels of GPUs.
"""

from dataclasses import replace

import torch

from attnbench.mechanisms.catalogue import registry
from tests.oracles import functions, layers, plain, separate

FORMS = {**functions.FORMS, **layers.FORMS, **separate.FORMS, **plain.FORMS}


def card(name):
    """The card of a mechanism, with the form of this folder too."""
    known = registry.card(name)
    if name not in FORMS:
        return known
    form = FORMS[name]
    label = getattr(form, "label", form.module.partition(".")[0])
    return replace(known, forms={**known.forms, label: form})


def build(name, form, config, w):
    """A form of a mechanism in float64. Skips the test with the reason if it cannot run here."""
    import pytest  # which the benchmark of speed does without

    tested = card(name)
    if reason := tested.refusal(form, config, w):
        pytest.skip(reason)
    return tested.forms[form](config, config.sized(w)).double()


def pair(name, forms, config, w):
    """Two forms of a mechanism, each time with the same random parameters."""
    torch.manual_seed(0)
    return (build(name, form, config, w) for form in forms)
