"""The checks of the contract find mechanisms that break it, by one defect each."""

from dataclasses import replace

import pytest
import torch

from attnbench.attention.checks import training
from attnbench.attention.checks.checks import checks, computes_its_own_equations, name_of, result
from attnbench.attention.checks.trial import Trial
from attnbench.attention.contract import Flops
from attnbench.attention.kernels.primitives import key_mask, softmax_attention
from attnbench.mechanisms.transformer import CARD, Transformer
from attnbench.records import Level


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


class Careless(torch.autograd.Function):
    """tanh, with what a backward pass by hand is easily given."""

    @staticmethod
    def forward(ctx, x, flaw):
        y = x.tanh()
        ctx.flaw, ctx.passes, ctx.x, ctx.y = flaw, 0, x.detach(), y.detach()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        if ctx.flaw == "read twice":
            (y,) = ctx.saved_tensors
        if ctx.flaw == "constant":
            y = ctx.y
        if ctx.flaw == "unseen":
            y = ctx.x.tanh()
        if ctx.flaw == "counting":
            ctx.passes += 1
        return gradient * (1 - y**2) * max(1, ctx.passes), None


class Constant(Transformer):
    """Keeps its output where autograd does not see it."""

    flaw = "constant"

    def attend(self, q, k, v, mask):
        return super().attend(q, k, Careless.apply(v, self.flaw), mask)


class ReadTwice(Constant):
    flaw = "read twice"


class Counting(Constant):
    """A second backward pass gives twice as much."""

    flaw = "counting"


class Unseen(Constant):
    """Reads its input again in the backward pass, whatever became of it."""

    flaw = "unseen"


class Strided(Transformer):
    """Takes queries as projections lay them out."""

    def attend(self, q, k, v, mask):
        usual = torch.empty_like(q.transpose(1, 2).contiguous()).transpose(1, 2).stride()
        return super().attend(torch.as_strided(q, q.shape, usual), k, v, mask)


class Wider(Transformer):
    """Has no operation in bfloat16."""

    def attend(self, q, k, v, mask):
        if q.dtype == torch.bfloat16:
            raise RuntimeError("not implemented for BFloat16")
        return super().attend(q, k, v, mask)


class Freezing(Transformer):
    """Detaches values where queries need no gradient."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v if q.requires_grad else v.detach(), mask)


class Plural(Transformer):
    """Divides by the number of other tokens."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) / (q.shape[2] - 1)


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


def test_of_modules_that_promise_less_it_is_noted_and_not_failed():
    """What silently gives wrong gradients is failed, whoever wrote it."""
    noted, failed = set(), set()
    for defect in (Wider, Constant, ReadTwice, Plural, Counting):
        card = replace(CARD, forms={"eager": defect}, declared=False)
        trial = Trial(card, CARD.config(), "eager", False)
        for check in training.CHECKS:
            found = result(check, trial, None)["result"]
            {"noted": noted, "failed": failed, "passed": set()}[found].add(name_of(check))
    assert noted == {
        "bf16 autocast works in both modes",
        "a second derivative is exact or raises",
        "a checkpoint gives the same gradients",
        "an empty batch and one token work",
    }
    assert "a second backward pass gives the same" in failed
    assert not failed & noted
