"""Mechanisms as their tests build them: small, in float64, always with the same parameters."""

from dataclasses import fields

import torch

from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Causality, Level, Workload

SIZES = {field.name for field in fields(Workload)}


def workload(name, **sizes):
    """Two sequences of 20 tokens, D = 16, four heads; causal where the mechanism always is."""
    usual = {"batch": 2, "seq_len": 20, "width": 16, "heads": 4, "level": Level.ATTENTION}
    causal = card(name).causality is Causality.ALWAYS
    return Workload(**{**usual, "causal": causal, **sizes})


def build(name, form="eager", **given):
    """A form; what is no size of its workload is an option of the mechanism."""
    options = {key: value for key, value in given.items() if key not in SIZES}
    w = workload(name, **{key: given[key] for key in SIZES & given.keys()})
    torch.manual_seed(0)
    return card(name).forms[form](card(name).config(**options), w).double()


def core(name, form="eager", **given):
    """What stands between the projections."""
    return build(name, form, level=Level.CORE, **given)


def qkv(seq_len=20):
    """Queries, keys and values of four heads."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(3, 2, 4, seq_len, 4, generator=generator, dtype=torch.float64)
