"""The checks of the contract find mechanisms that break it, by one defect each."""

from dataclasses import replace

import pytest

from attnbench.attention.checks.checks import checks, computes_its_own_equations, name_of
from attnbench.attention.checks.trial import Trial
from attnbench.mechanisms.transformer import CARD, Transformer
from tests.attention.checks.defects import (
    Biased,
    Cheap,
    Constant,
    Counting,
    Detached,
    Empty,
    Foresighted,
    Forgetful,
    Freezing,
    Heavy,
    Kept,
    Leaking,
    Mixing,
    Padded,
    Plural,
    ReadTwice,
    Residual,
    Rough,
    Scaled,
    Small,
    Stepless,
    Strided,
    Undefined,
    Unseen,
    Wide,
    Wider,
)

DEFECTS = {
    "gives the shape and type it was given": (Wide, Undefined),
    "computes its own equations": (Scaled, Padded, Leaking, Undefined, Rough),
    "gradients reach x and every parameter": (Detached, Biased),
    "sequences of a batch do not mix": (Mixing,),
    "what is masked changes no real token": (Padded,),
    "padding at the end changes nothing": (Padded,),
    "a sequence of padding alone is finite": (Empty,),
    "the core of a sequence of padding alone is zero": (Kept,),
    "causal is blind to the future": (Leaking,),
    "declared parameters are those of the module": (Biased,),
    "declared flops are those that torch counts": (Cheap,),
    "the core is what stands between the projections": (Heavy,),
    "steps continue the causal pass": (Forgetful, Foresighted, Small),
    "declared flops of a step are those that torch counts": (Stepless,),
    "bf16 autocast works in both modes": (Wider,),
    "a second derivative is exact or raises": (Constant, Unseen),
    "a checkpoint gives the same gradients": (ReadTwice,),
    "frozen leaves change no other gradient": (Freezing,),
    "a second backward pass gives the same": (Counting,),
    "strided and expanded tensors give the same": (Strided,),
    "what is changed in place raises": (Unseen,),
    "an empty batch and one token work": (Plural,),
}
TRIALS = [Trial(CARD, CARD.config(), "eager", causal) for causal in (False, True)]


@pytest.mark.parametrize("check", checks(TRIALS[0]), ids=name_of)
def test_a_check_passes_what_is_sound_and_finds_what_is_not(check):
    trial = next(trial for trial in TRIALS if not checks(trial)[check])
    for sound in (Transformer, Residual):
        check(replace(trial, card=replace(CARD, forms={"eager": sound})))
    for defect in DEFECTS[name_of(check)]:
        with pytest.raises((AssertionError, RuntimeError)):
            check(replace(trial, card=replace(CARD, forms={"eager": defect})))


def test_another_form_computes_the_same_with_the_same_parameters():
    """The reference has the parameters of `eager`, so those of other forms have the same names."""
    for form, message in ((Scaled, "error of output"), (Biased, "unused")):
        card = replace(CARD, forms={"eager": Transformer, "other": form})
        with pytest.raises((AssertionError, RuntimeError), match=message):
            computes_its_own_equations(Trial(card, CARD.config(), "other", False))
