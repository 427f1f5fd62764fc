"""The checks of the contract find mechanisms that break it, by one defect each."""

from dataclasses import replace

import pytest
import torch

from attnbench.attention.contract import Flops
from attnbench.attention.primitives import key_mask, softmax_attention
from attnbench.mechanisms.transformer import CARD, Transformer
from attnbench.records import Level
from attnbench.verify.checks import (
    checks,
    computes_its_own_equations,
    name_of,
)
from attnbench.verify.trial import Trial


class Padded(Transformer):
    """Uses padding as keys."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, None)


class Empty(Transformer):
    """Gives NaN where there is no key."""

    def attend(self, q, k, v, mask):
        o = super().attend(q, k, v, mask)
        return o if mask is None else o / mask.any(-1)[:, None, None, None]


class Kept(Transformer):
    """Gives a mean of the values where there is no key."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, None if mask is None else mask | ~mask.any(-1, True))


class Leaking(Transformer):
    """Sees one token ahead."""

    def attend(self, q, k, v, mask):
        later = torch.cat([v[:, :, 1:], v[:, :, -1:]], 2)
        return super().attend(q, k, later, mask)


class Mixing(Transformer):
    """Centres the queries over the batch."""

    def attend(self, q, k, v, mask):
        return super().attend(q - q.mean(0), k, v, mask)


class Scaled(Transformer):
    """Forgets the root of the scale."""

    def attend(self, q, k, v, mask):
        return softmax_attention(q / q.shape[-1] ** 0.5, k, v, key_mask(mask), self.causal)


class Undefined(Transformer):
    """Its output at the first token is not a number."""

    def attend(self, q, k, v, mask):
        o = super().attend(q, k, v, mask)
        return torch.cat([o[:, :, :1] / 0 * 0, o[:, :, 1:]], 2)


class Detached(Transformer):
    """No gradient reaches the keys."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k.detach(), v, mask)


class Wide(Transformer):
    """Computes in float64 and stays there."""

    def forward(self, x, mask=None):
        return super().forward(x, mask).double()


class Cheap(Transformer):
    """Declares half of its products."""

    @staticmethod
    def flops(config, w):
        return Flops(Transformer.flops(config, w).projections, 2 * w.tokens * w.seq_len * w.width)


class Forgetful(Transformer):
    """A step does not read the token itself."""

    def attend_next(self, q, state, mask):
        k, v = state.held()
        others = None if mask is None else mask[:, :-1]
        return softmax_attention(q, k[:, :, :-1], v[:, :, :-1], others)


class Foresighted(Transformer):
    """The first of a step's tokens reads the later ones."""

    def attend_next(self, q, state, mask):
        return super().attend_next(q, state, None)


class Small(Transformer):
    """Declares half of its state."""

    @staticmethod
    def state_elements(config, w):
        return w.tokens * w.width


class Stepless(Transformer):
    """Declares the FLOPs of a pass as those of a step."""

    @classmethod
    def step_flops(cls, config, w):
        return cls.flops(config, w)


class Biased(Transformer):
    """Has a parameter that its card does not declare, and that no output uses."""

    def __init__(self, config, workload):
        super().__init__(config, workload)
        self.unused = torch.nn.Parameter(torch.ones(1))


class Heavy(Transformer):
    """Its core has a parameter that the whole does not have."""

    def __init__(self, config, workload):
        super().__init__(config, workload)
        if workload.level is Level.CORE:
            self.more = torch.nn.Parameter(torch.ones(1))


class Rough(Transformer):
    """Computes float32 with the digits of bfloat16."""

    def attend(self, q, k, v, mask):
        o = super().attend(q, k, v, mask)
        return o.bfloat16().float() if o.dtype == torch.float32 else o


class Residual(Transformer):
    """Sound: it begins as nothing, as what is added to a residual stream often does."""

    def __init__(self, config, workload):
        super().__init__(config, workload)
        if workload.level is not Level.CORE:
            torch.nn.init.zeros_(self.output.weight)


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
}
TRIALS = [Trial(CARD, CARD.config(), "eager", causal) for causal in (False, True)]


@pytest.mark.parametrize("check", checks(TRIALS[0]), ids=name_of)
def test_a_check_passes_what_is_sound_and_finds_what_is_not(check):
    trial = next(trial for trial in TRIALS if not checks(trial)[check])
    for sound in (Transformer, Residual):
        check(replace(trial, card=replace(CARD, forms={"eager": sound})))
    for defect in DEFECTS[name_of(check)]:
        with pytest.raises(AssertionError):
            check(replace(trial, card=replace(CARD, forms={"eager": defect})))


def test_another_form_computes_the_same_with_the_same_parameters():
    """The reference has the parameters of `eager`, so those of other forms have the same names."""
    for form, message in ((Scaled, "error of output"), (Biased, "unused")):
        card = replace(CARD, forms={"eager": Transformer, "other": form})
        with pytest.raises((AssertionError, RuntimeError), match=message):
            computes_its_own_equations(Trial(card, CARD.config(), "other", False))
