"""A GPU without one: tensors without data, which say that they lie on a GPU.

What a mechanism asks of a device it gets from a GPU; what asks a tensor for its numbers fails, as
on a GPU it would wait. Fused attention is not computed: its operands are kept.
"""

import weakref
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnbench.mechanisms.catalogue import registry
from attnbench.records import Causality, Level, Mode, Workload

GPU = torch.device("cuda", 0)
WITHOUT_DATA = torch.device("meta")
ALIGNED = 8  # elements: 16 bytes of a half type
MOST = 65_535  # sequences, and heads, of one launch
# what copies numbers of the host to the tensor that it makes, below what a dispatch mode sees
FROM_HOST = (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)
# operators for which the host waits whatever mechanism calls them: for errors of LAPACK's kind, for
# a largest number, for a size that is counted, and for a number itself
WAITING = (
    *("_linalg_check_errors", "bincount", "histc", "nonzero.default", "unique", "masked_select"),
    *("_local_scalar_dense", "is_nonzero", "equal.default"),
)
# what makes a tensor, or another view of one, without a kernel
NO_KERNEL = ("empty", "_unsafe_view", "detach", "lift_fresh")


@dataclass(frozen=True)
class Fused:
    """The operands of one call of fused attention."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    shared: bool

    def faults(self) -> list[str]:
        """What a kernel of a GPU refuses, misreads, or leaves to one that stores all weights."""
        found = []
        if self.q.shape[1] != self.k.shape[1] and not self.shared:
            found.append(f"{self.q.shape[1]} heads of q read {self.k.shape[1]} of k")
        if not self.q.shape[-1] == self.k.shape[-1] == self.v.shape[-1]:
            found.append(f"q is {self.q.shape[-1]} wide, v {self.v.shape[-1]}")
        if max(self.q.shape[:2]) > MOST:
            found.append(f"q {tuple(self.q.shape)} has more sequences or heads than a launch")
        for name, x in zip("qkv", (self.q, self.k, self.v), strict=True):
            # torch widens heads of another width itself
            if x.shape[-1] % ALIGNED == 0 and not aligned(x):
                found.append(f"{name} {tuple(x.shape)} has strides {x.stride()}")
            if x.storage_offset() % ALIGNED and x.shape[-1] % ALIGNED == 0:
                found.append(f"{name} starts at {x.storage_offset()}")
        # torch copies a mask whose strides are not aligned, and looks at nothing else
        if self.mask is not None and aligned(self.mask) and self.mask.storage_offset() % ALIGNED:
            found.append(f"the mask starts at {self.mask.storage_offset()}")
        return found


def aligned(x: Tensor) -> bool:
    """Whether every row of a tensor begins at a multiple of `ALIGNED` elements from its start."""
    outer = zip(x.stride()[:-1], x.shape[:-1], strict=True)
    return x.stride(-1) == 1 and all(step % ALIGNED == 0 for step, size in outer if size > 1)


class Output(torch.autograd.Function):
    """Something of the shape of fused attention's output, with gradients for its operands."""

    @staticmethod
    def forward(ctx: Any, *operands: Tensor | None) -> Tensor:
        ctx.save_for_backward(*operands)
        q, _, v, _ = operands
        return q.new_empty(*q.shape[:-1], v.shape[-1])

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        asked = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=True)
        return tuple(x.new_empty(x.shape) if needed else None for x, needed in asked)


class PretendedGpu(TorchFunctionMode):
    """Where `fused` collects the calls of fused attention; `choice` is torch's first kernel.

    `keeps`: whether it does, which keeps their operands alive.
    """

    def __init__(
        self, choice: SDPBackend = SDPBackend.EFFICIENT_ATTENTION, keeps: bool = True
    ) -> None:
        super().__init__()
        self.fused: list[Fused] = []
        self.choice = choice
        self.keeps = keeps
        self.waits: set[str] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        answers = {"is_cuda": True, "is_cpu": False, "device": GPU}
        for name, answer in answers.items():
            if func == getattr(Tensor, name).__get__:
                return answer
        if func is torch._fused_sdp_choice:
            return self.choice.value
        if func is F.scaled_dot_product_attention:
            q, k, v, *others = args
            mask = others[0] if others else kwargs.get("attn_mask")
            if self.keeps:
                self.fused.append(Fused(q, k, v, mask, kwargs.get("enable_gqa", False)))
            return Output.apply(q, k, v, mask)
        own = {name: on_hand(value) for name, value in kwargs.items()}
        out = func(*map(on_hand, args), **own)
        if func in FROM_HOST and lies_there(out):
            data = args[func == Tensor.new_tensor]
            if not lies_there(data):
                self.waits.add(func.__name__)
        return out


def lies_there(x: Any) -> bool:
    """Whether something is a tensor of the pretended GPU."""
    return isinstance(x, Tensor) and x.device == WITHOUT_DATA


def on_hand(argument: Any) -> Any:
    """The device that there is where the GPU is meant, and anything else as it is."""
    named = isinstance(argument, str) and argument in ("cuda", str(GPU))
    meant = named or (isinstance(argument, torch.device) and argument == GPU)
    return WITHOUT_DATA if meant else argument


class Launches(TorchDispatchMode):
    """Counts operators that launch a kernel, and names those for which the host waits.

    They are those that tensors without data allow: the others raise.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.waits: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.count += not func.is_view and not any(name in str(func) for name in NO_KERNEL)
        out = func(*args, **(kwargs or {}))
        if waits(func, args, out):
            self.waits.add(str(func))
        return out


class Allocations(TorchDispatchMode):
    """The most bytes of the pretended GPU's tensors that were alive at once."""

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self.storages: dict[int, Any] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.add(*tree_leaves(out))
        return out

    def add(self, *tensors: Any) -> None:
        """Counts tensors until they are freed, each storage once."""
        for storage in (x.untyped_storage() for x in tensors if lies_there(x)):
            if (key := storage._cdata) not in self.storages:
                forget = partial(self.freed, key, storage.nbytes())
                self.storages[key] = weakref.ref(storage, forget)
                self.live += storage.nbytes()
                self.peak = max(self.peak, self.live)

    def freed(self, key: int, size: int, _: Any) -> None:
        """A storage is gone."""
        self.live -= size
        del self.storages[key]


def waits(func: Any, args: tuple[Any, ...], out: Any) -> bool:
    """Whether an operator fetches from pageable memory, or looks for where a mask is true."""
    name = str(func)
    if any(word in name for word in WAITING):
        return True
    if "copy" in name:
        sources = [x for x in args if isinstance(x, Tensor) and x.device.type == "cpu"]
        return bool(sources) and out.device == WITHOUT_DATA
    if "repeat_interleave.Tensor" in name:
        return True
    chosen = args[1] if "index_put" in name or "index.Tensor" in name else ()
    return any(index is not None and index.dtype == torch.bool for index in chosen)


@dataclass(frozen=True)
class Iteration:
    """What one iteration of a form did: calls of fused attention, and how many launches."""

    form: str
    fused: list[Fused]
    launches: int
    waits: set[str]

    def faults(self) -> list[str]:
        """Those of all calls, each once."""
        return sorted({fault for call in self.fused for fault in call.faults()})


def workload(name: str, seq_len: int, mode: Mode, batch: int = 2, padding: float = 0) -> Workload:
    """An attention of usual width on a GPU, causal where it can be."""
    return Workload(
        batch=batch,
        seq_len=seq_len,
        width=256,
        heads=16,
        level=Level.ATTENTION,
        mode=mode,
        device="cuda",
        causal=registry.card(name).causality is not Causality.NEVER,
        padding=padding,
    )


def iterated(name: str, w: Workload, choice: SDPBackend | None = None) -> Iteration:
    """One iteration of the default form of a mechanism: a pass, with gradients, or a step."""
    card = registry.card(name)
    form = card.default_form(card.config(), w)
    with WITHOUT_DATA:
        module = card.forms[form](card.config(), w)
        trains = w.mode is Mode.TRAINING
        x = torch.empty(w.batch, w.seq_len, w.width, requires_grad=trains)
        mask = torch.ones(w.batch, w.seq_len, dtype=torch.bool) if w.padding else None
    gpu = PretendedGpu(choice or SDPBackend.EFFICIENT_ATTENTION)
    launches = Launches()
    with gpu, launches, torch.set_grad_enabled(trains):
        if w.steps:
            _, state = module.prefill(x[:, :-1], module.start(w.batch, w.seq_len))
            gpu.fused.clear()
            launches.count = 0
            launches.waits.clear()
            gpu.waits.clear()
            module.step(x[:, -1:], state)
        else:
            y = module(x, mask)
        if trains:
            backward(y)
    return Iteration(form, gpu.fused, launches.count, launches.waits | gpu.waits)


def peak_bytes(name: str, w: Workload) -> int:
    """The most memory at once in an iteration of the default form, with parameters and input."""
    card = registry.card(name)
    trains = w.mode is Mode.TRAINING
    with WITHOUT_DATA:
        module = card.forms[card.default_form(card.config(), w)](card.config(), w)
        x = torch.empty(w.batch, w.seq_len, w.width, requires_grad=trains)
    allocations = Allocations()
    with PretendedGpu(keeps=False), torch.set_grad_enabled(trains), allocations:
        allocations.add(x, *module.parameters())
        y = module(x, None)
        if trains:
            backward(y)
    return allocations.peak


def backward(y: Tensor) -> None:
    """The backward pass, below `Tensor.backward`, which would leave the mode."""
    run = torch.autograd.graph._engine_run_backward
    options = {"allow_unreachable": True, "accumulate_grad": True}
    run((y,), (torch.empty_like(y),), False, False, (), **options)
