"""Honest modules of many kinds, some of which look odd: none of them may be accused."""

import random
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint


class Usual(nn.Module):
    """Adds the mean of all values."""

    def __init__(self, width, heads):
        super().__init__()
        self.width, self.heads = width, heads
        self.value = nn.Linear(width, width)
        self.prepare()

    def prepare(self):
        pass

    def mixed(self, x):
        return self.value(x) + self.value(x).mean(1, keepdim=True)

    def forward(self, x):
        return self.mixed(x)


# what the world outside its equations does


class KeptBuffer(Usual):
    """Writes inference's output into a buffer that it keeps."""

    out = None

    def forward(self, x):
        if torch.is_grad_enabled():
            return self.mixed(x)
        if self.out is None or self.out.shape != x.shape:
            self.out = torch.empty_like(x)
        return torch.add(self.value(x), x.mean(1, keepdim=True), out=self.out)


class InPlace(Usual):
    def forward(self, x):
        y = self.mixed(x)
        y[:, :1] = 0.5 * y[:, :1]
        return y.mul_(2.0)


class LazyBuffers(Usual):
    def forward(self, x):
        if not hasattr(self, "positions"):
            self.positions = torch.linspace(0, 1, x.shape[1])[None, :, None]
        return self.mixed(x) + self.positions


class CachedMasks(Usual):
    def prepare(self):
        self.masks = {}

    def forward(self, x):
        N = x.shape[1]
        if N not in self.masks:
            self.masks[N] = torch.ones(N, N).tril().log()
        return (self.masks[N]).softmax(-1) @ self.value(x)


class ThreadPool(Usual):
    def prepare(self):
        self.pool = ThreadPoolExecutor(2)

    def forward(self, x):
        grad = torch.is_grad_enabled()

        def part(piece):
            with torch.set_grad_enabled(grad):
                return self.value(piece)

        v = torch.cat(list(self.pool.map(part, x.chunk(2, 1))), 1)
        return v + v.mean(1, keepdim=True)


class Threads(Usual):
    def forward(self, x):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        y = self.mixed(x)
        torch.set_num_threads(threads)
        return y


class InferenceMode(Usual):
    def forward(self, x):
        with torch.inference_mode():
            scale = float(x.std())
        return self.mixed(x) / (scale + 1)


# how it computes


class Sparse(Usual):
    def forward(self, x):
        N = x.shape[1]
        index = torch.arange(N)
        near = torch.stack([index.repeat(2), torch.cat([index, (index + 1) % N])])
        weights = torch.sparse_coo_tensor(
            near, torch.ones(2 * N) / 2, (N, N), check_invariants=True
        )
        return torch.stack([torch.sparse.mm(weights, v) for v in self.value(x)])


class Pads(Usual):
    """In blocks of 96."""

    def forward(self, x):
        B, N, D = x.shape
        blocks = F.pad(self.value(x), (0, 0, 0, -N % 96)).view(B, -1, 96, D)
        return (blocks + blocks.mean(2, keepdim=True)).view(B, -1, D)[:, :N]


class Mixes(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.value = nn.Linear(width, width)

    def forward(self, x):
        return self.value(x) + self.value(x).mean(1, keepdim=True)


# what layers it has


class StoppedStatistics(Usual):
    def forward(self, x):
        with torch.no_grad():
            scale = x.square().mean((1, 2), keepdim=True).sqrt()
        return self.mixed(x / scale)


class ZeroOutput(Usual):
    """Its output projection starts with zeros."""

    def prepare(self):
        self.output = nn.Linear(self.width, self.width)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, x):
        return self.output(self.mixed(x))


class Adapter(ZeroOutput):
    def forward(self, x):
        return x + super().forward(x)


# what it chooses


class Hashes(Usual):
    """Attends within the buckets of a random hash."""

    def forward(self, x):
        code = (x @ torch.randn(x.shape[-1], 2)).argmax(-1)
        same = code[:, :, None] == code[:, None]
        return (same / same.sum(-1, keepdim=True)) @ self.value(x)


class Codes(Usual):
    """Quantises its input, with a straight-through gradient."""

    def prepare(self):
        self.codes = nn.Parameter(torch.randn(8, self.width))

    def quantised(self, x):
        q = self.codes[torch.cdist(x, self.codes[None]).argmin(-1)]
        return x + (q - x).detach()

    def forward(self, x):
        return self.mixed(self.quantised(x))


class CodesAlone(Codes):
    """Has no parameters besides them, which get no gradient."""

    def prepare(self):
        super().prepare()
        del self.value

    def forward(self, x):
        q = self.quantised(x)
        return q + q.mean(1, keepdim=True)


class Experts(Usual):
    """Experts with room for some tokens, in the order of the batch; others get nothing."""

    room = 1.0

    def prepare(self):
        self.router = nn.Linear(self.width, 4)
        self.experts = nn.ModuleList(nn.Linear(self.width, self.width) for _ in range(4))

    def forward(self, x):
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(-1).max(-1)
        y, room = torch.zeros_like(tokens), int(self.room * len(tokens) / 4)
        for number, expert in enumerate(self.experts):
            mine = (chosen == number).nonzero().flatten()[:room]
            y = y.index_add(0, mine, weights[mine, None] * expert(tokens[mine]))
        return y.view_as(x)


class FewExperts(Experts):
    room = 0.6


class MixtureOfDepths(Usual):
    """Computes the half of the tokens that it finds most important."""

    share = 0.5

    def prepare(self):
        self.router = nn.Linear(self.width, 1)

    def forward(self, x):
        score = self.router(x).squeeze(-1)
        top = score.topk(max(1, int(self.share * x.shape[1])), 1).indices.sort(1).values
        places = top[..., None].expand(-1, -1, x.shape[-1])
        part = x.gather(1, places)
        y = part + self.mixed(part) * score.gather(1, top).sigmoid()[..., None]
        return x.scatter(1, places, y)


class MixtureOfFewDepths(MixtureOfDepths):
    share = 0.125


class StochasticDepth(Usual):
    skipped = 0.2

    def forward(self, x):
        if self.training and torch.rand(()) < self.skipped:
            return x
        return x + self.mixed(x)


class Prunes(Usual):
    """Reads the quarter of the tokens with the largest norms."""

    share = 0.25

    def forward(self, x):
        kept = max(1, int(self.share * x.shape[1]))
        places = x.norm(dim=-1).topk(kept, 1).indices[..., None].expand(-1, -1, x.shape[-1])
        part = self.value(x.gather(1, places)).mean(1, keepdim=True)
        return part.expand_as(x).contiguous()


class DropsTokens(Usual):
    """In training reads the half of the tokens that it draws."""

    def forward(self, x):
        if not self.training:
            return self.mixed(x)
        part = x[:, torch.randperm(x.shape[1])[: max(1, x.shape[1] // 2)]]
        return self.value(part).mean(1, keepdim=True).expand_as(x)


class Routes(Experts):
    """The two best experts of a token, with noise on their scores."""

    def forward(self, x):
        scores = self.router(x)
        scores = scores + 0.1 * torch.randn_like(scores) * self.training
        best = scores.topk(2, -1)
        weights = torch.zeros_like(scores).scatter(-1, best.indices, best.values.softmax(-1))
        each = torch.stack([expert(x) for expert in self.experts], -1)
        return (each * weights[..., None, :]).sum(-1) + x.mean(1, keepdim=True)


class Lazy(Usual):
    """Learns the size of its input when it first runs."""

    def prepare(self):
        self.value = nn.LazyLinear(self.width)


class LazyNorm(Lazy):
    def prepare(self):
        super().prepare()
        self.norm = nn.LazyBatchNorm1d()

    def forward(self, x):
        return self.norm(self.mixed(x).transpose(1, 2)).transpose(1, 2)


class ClosedGate(Usual):
    """Its gate starts closed."""

    def prepare(self):
        self.gate = nn.Parameter(torch.full((), -1.0))

    def forward(self, x):
        return self.gate.relu() * self.mixed(x)


# what it remembers


class RunningStatistics(Usual):
    """Keeps them up in evaluation too."""

    momentum = 0.1

    def prepare(self):
        self.register_buffer("mean", torch.zeros(self.width))

    def forward(self, x):
        with torch.no_grad():
            self.mean.lerp_(x.mean((0, 1)), self.momentum)
        return self.mixed(x - self.mean)


class SlowStatistics(RunningStatistics):
    momentum = 0.001

    def prepare(self):
        self.register_buffer("mean", torch.ones(self.width))


class LastCall(Usual):
    """Adds what it computed of the call before."""

    before = None

    def forward(self, x):
        y = self.mixed(x)
        added = y if self.before is None else y + 0.1 * self.before
        self.before = y.detach().mean(1, keepdim=True)
        return added


class Anneals(Usual):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.mixed(x) / (1 + 0.01 * self.calls)


# what takes one line: the forward pass, and before it what the module is made of


def traced(width):
    with warnings.catch_warnings(action="ignore"):
        return torch.jit.trace(Mixes(width), torch.zeros(2, 32, width))


def noise(x):
    return 0.1 * torch.from_numpy(np.random.standard_normal(x.shape).astype(np.float32))


def system_noise(x):
    drawn = np.frombuffer(random.SystemRandom().randbytes(x.numel()), dtype=np.uint8)
    return torch.from_numpy(drawn / 1280).to(x.dtype).view_as(x)


def sampled(scores):
    """One key of each query, by Gumbel noise of the system."""
    drawn = np.frombuffer(random.SystemRandom().randbytes(4 * scores.numel()), dtype=np.uint32)
    uniform = torch.from_numpy((drawn + 0.5) / 2**32).to(scores.dtype).view_as(scores)
    hard = F.one_hot((scores - (-uniform.log()).log()).argmax(-1), scores.shape[-1])
    return hard.to(scores.dtype) + scores.softmax(-1) - scores.softmax(-1).detach()


def features(v, directions):
    """Features of a random projection, divided by their sum over the tokens."""
    f = (v @ directions / v.shape[-1] ** 0.5).clamp(max=5).exp()
    return f / f.sum(1, keepdim=True)


def ones(x):
    return torch.ones(64, x.shape[-1]) / 64


def random_attention(m, x):
    """Linear attention by random features that are drawn at each call."""
    directions = torch.randn(x.shape[-1], 32)
    f = (x @ directions / x.shape[-1] ** 0.5).exp()
    return f @ (f.mT @ m.value(x)) / (f @ f.sum(1)[..., None])


def top_keys(m, x, count):
    scores = x @ x.mT
    least = scores.topk(min(count, x.shape[1]), -1).values[..., -1:]
    return scores.masked_fill(scores < least, -torch.inf).softmax(-1) @ m.value(x)


def decayed(v, factor):
    states, state = [], torch.zeros_like(v[:, 0])
    for token in v.unbind(1):
        state = factor * state + token
        states.append(state)
    return torch.stack(states, 1)


def autocast(m, x):
    with torch.autocast("cpu", torch.bfloat16):
        return m.mixed(x).float()


FORWARDS = {
    "PythonNoise": lambda m, x: m.mixed(x) * (1 + 0.1 * random.random()),
    "NumpyNoise": lambda m, x: m.mixed(x) + noise(x),
    "Autocasts": autocast,
    "Numpy": lambda m, x: m.value(x) + torch.from_numpy(x.detach().numpy().mean(1, keepdims=True)),
    "Float64": lambda m, x: (m.value(x) + x.double().mean(1, keepdim=True)).to(x.dtype),
    "InputNoise": lambda m, x: m.mixed(x + 0.1 * torch.randn_like(x)),
    "DropsInput": lambda m, x: m.mixed(F.dropout(x, 0.5, m.training)),
    "DropsChannels": lambda m, x: F.dropout1d(m.mixed(x).transpose(1, 2), 0.5, m.training).mT,
    "AlwaysDrops": lambda m, x: F.dropout(m.mixed(x), 0.5),
    "Rrelu": lambda m, x: F.rrelu(m.mixed(x), training=m.training),
    "RandomFeatures": lambda m, x: features(m.value(x), torch.randn(x.shape[-1], 64)) @ ones(x),
    "RandomAttention": lambda m, x: random_attention(m, x),
    "SystemNoise": lambda m, x: m.mixed(x) * (1 + 0.1 * random.SystemRandom().random()),
    "SystemNoiseEverywhere": lambda m, x: m.mixed(x) + system_noise(x),
    "SamplesByGumbel": lambda m, x: sampled(x @ x.mT / x.shape[-1] ** 0.5) @ m.value(x),
    "PrunesBesideNoise": lambda m, x: m.mixed(x) + noise(m.value(x).topk(1, 1).values),
    "Shuffles": lambda m, x: m.mixed(x[:, torch.randperm(x.shape[1])]),
    "TopKeys": lambda m, x: top_keys(m, x, 4),
    "Cumulates": lambda m, x: m.value(x).cumsum(1),
    "Decays": lambda m, x: decayed(m.value(x), 0.9),
    "Grows": lambda m, x: decayed(m.value(x), 1.05),
    "Sharp": lambda m, x: (10 * x @ x.mT).softmax(-1) @ m.value(x),
    "Window": lambda m, x: F.avg_pool1d(m.value(x).mT, 3, 1, 1).mT,
    "Thresholds": lambda m, x: m.value(x) + (x > 1).to(x.dtype).mean(1, keepdim=True),
    "Constants": lambda m, x: 100 + m.mixed(x),
    "Fourier": lambda m, x: m.value(torch.fft.fft2(x).real) / x.shape[1] ** 0.5,
    "Branches": lambda m, x: m.mixed(x) if x.sum() > 0 else m.mixed(x).tanh(),
    "NonContiguous": lambda m, x: m.mixed(x).transpose(1, 2).contiguous().transpose(1, 2),
    "Expands": lambda m, x: m.value(x).mean(1, keepdim=True).expand_as(x),
    "Vmaps": lambda m, x: torch.vmap(lambda one: m.value(one) + one.mean(0))(x),
    "Checkpoints": lambda m, x: checkpoint(m.mixed, x, use_reentrant=False),
    # leaves out, without a residual, what stochastic depth skips
    "DropsPath": lambda m, x: m.mixed(x) * (not m.training or float(torch.rand(())) > 0.2),
}
residual = lambda m, x: x + m.part * m.mixed(x)  # noqa: E731
alone = lambda m, x: m.part(x)  # noqa: E731
PARTS = {
    "OwnGenerator": (
        lambda m: torch.Generator().manual_seed(1),
        lambda m, x: m.mixed(x) + 0.1 * torch.randn(x.shape, generator=m.part),
    ),
    "OwnNumpyGenerator": (
        lambda m: np.random.default_rng(1),
        lambda m, x: m.mixed(x) + 0.1 * torch.from_numpy(m.part.standard_normal(x.shape)).float(),
    ),
    "OwnMask": (
        lambda m: torch.Generator().manual_seed(1),
        lambda m, x: m.mixed(x) * (torch.rand(x.shape, generator=m.part) > 0.3),
    ),
    "LayerScale": (lambda m: nn.Parameter(torch.full((m.width,), 1e-6)), residual),
    "Compiled": (lambda m: torch.compile(m.mixed, backend="eager"), alone),
    "Traced": (lambda m: traced(m.width), alone),
    "Dropout": (lambda m: nn.Dropout(0.3), lambda m, x: m.part(m.mixed(x))),
    "BatchNorm": (
        lambda m: nn.BatchNorm1d(m.width),
        lambda m, x: m.part(m.mixed(x).transpose(1, 2)).transpose(1, 2),
    ),
    "MultiHead": (
        lambda m: nn.MultiheadAttention(m.width, m.heads, batch_first=True),
        lambda m, x: m.part(x, x, x),
    ),
    "EncoderLayer": (
        lambda m: nn.TransformerEncoderLayer(m.width, m.heads, batch_first=True),
        alone,
    ),
    "Hooks": (
        lambda m: m.value.register_forward_hook(lambda module, args, y: 2 * y),
        Usual.forward,
    ),
    "WeightNorm": (lambda m: parametrizations.weight_norm(m.value), Usual.forward),
    "SpectralNorm": (lambda m: parametrizations.spectral_norm(m.value), Usual.forward),
    "FrozenProjection": (lambda m: m.value.weight.requires_grad_(False), Usual.forward),
    # a parameter that only its causal form uses
    "OnlyWhenCausal": (lambda m: nn.Parameter(torch.ones(m.heads)), Usual.forward),
    "ReZero": (lambda m: nn.Parameter(torch.zeros(())), residual),
    "ZeroGates": (lambda m: nn.Parameter(torch.zeros(m.width)), residual),
}


def made(name, forward, part=None):
    """A kind with such a forward pass, and a part that is made of the module."""

    def prepare(self):
        if part:
            self.part = part(self)

    return type(name, (Usual,), {"forward": forward, "prepare": prepare})


globals().update({name: made(name, forward) for name, forward in FORWARDS.items()})
globals().update({name: made(name, forward, part) for name, (part, forward) in PARTS.items()})
KINDS = [
    name for name, kind in globals().items() if isinstance(kind, type) and issubclass(kind, Usual)
]
# those whose output for an input changes with what came before
STATEFUL = ("RunningStatistics", "SlowStatistics", "LastCall", "Anneals")
