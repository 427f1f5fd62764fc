"""Modules that break the contract by one defect each, and one that is sound."""

import torch

from attnbench.attention.contract import Flops
from attnbench.attention.kernels.primitives import key_mask, softmax_attention
from attnbench.mechanisms.transformer import Transformer
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
