"""Forms that other packages compute: `longformer:transformers` is Longformer by transformers.

A package is one file or folder, named as it is imported, with `FORMS`: a class for each mechanism
that it computes. A package is imported when one of its forms is built, and never before.

    Peer    part of the mechanism's own class computed by functions of the package
    Kernel  the same by a compiled kernel, which is tried out when the form is built
    Shared  the package's sub-layer on the parameters of the mechanism's own class

They have the mechanism's class as their second base and compute its function with its parameters,
except where `deviation` says otherwise.
"""

import importlib
import warnings
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch as pytorch  # importing mechanisms/peers/torch.py sets `torch` in this namespace
from torch import Tensor, cat, nn

from attnbench.attention import Attention, CoreAttention
from attnbench.attention.contract import Unusable
from attnbench.errors import one_line
from attnbench.records import Level, Workload

EXTRA = "pip install 'attnbench[peers]'"


def installed(package: str) -> str:
    """The version of a package by its name for pip; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


class Peer(Attention):
    """A form that a package computes.

    `module` is what to import of the package and `install` how to get the package. `release` is the
    only major version of the package that has it; empty: any. `tolerance` is the largest error in
    float64, relative to the largest output, of a form that does not deviate, for standard normal x.
    """

    module: str
    install = EXTRA
    release = ""
    flops_estimated = True
    takes_causal = False
    takes_padding = False
    tolerance = 1e-9

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.library = self.imported()

    @classmethod
    def imported(cls) -> Any:
        """The module of the package. Raises `Unusable` where it cannot be imported."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return importlib.import_module(cls.module)
        except Exception as error:  # a package may raise anything
            found = f"{cls.package} {installed(cls.package)}"
            raise Unusable(f"{found} cannot be imported here: {one_line(error)}") from error

    @classmethod
    def needs(cls, config: Any, workload: Workload) -> str | None:
        """Why the package cannot run the workload, or None; the package is not imported."""
        if find_spec(cls.module.partition(".")[0]) is None:
            return f"{cls.package} is not installed: {cls.install}"
        found = installed(cls.package)
        if cls.release and found.partition(".")[0] != cls.release:
            return f"it needs {cls.package} {cls.release}; {found} is installed"
        if workload.causal and not cls.takes_causal:
            return f"{cls.package} has no causal form of it"
        if workload.padding and not cls.takes_padding:
            return f"{cls.package} takes no padding mask here"
        return cls.unsupported_reason(config, workload) or super().needs(config, workload)

    @staticmethod
    def unsupported_reason(config: Any, workload: Workload) -> str | None:
        """Which options, types or sizes the package does not have, or None."""
        return None


class Kernel(Peer, CoreAttention):
    """A form whose core is a compiled kernel; packages with one may be installed but unusable."""

    flops_estimated = False  # torch counts no product in a kernel

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.to(workload.device)
        self.try_out(workload)

    def try_out(self, w: Workload) -> None:
        """Run the core on some zeros of the workload's type, in training with a backward pass.

        Raises `Unusable` where it does not run: whether a compiled kernel and its compiler work on
        this machine is not known before.
        """
        shapes = self.core_inputs(self.config, replace(w, batch=1, seq_len=max(16, w.heads)))
        dtype = getattr(pytorch, w.dtype)
        try:
            inputs = [
                pytorch.zeros(shape, dtype=dtype, device=w.device, requires_grad=w.trains)
                for shape in shapes
            ]
            with pytorch.set_grad_enabled(w.trains):
                o = self.attend(*inputs, None)
                if w.trains:
                    o.sum().backward()
        except pytorch.OutOfMemoryError:
            raise
        except Exception as error:  # drivers, compilers and packages raise anything
            found = f"{self.package} {installed(self.package)}"
            raise Unusable(f"{found} does not work here: {one_line(error)}") from error


class Layer(Peer):
    """A form that is a package's whole sub-layer, `package_layer`."""

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.package_layer = self.layer(config, workload)

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        """The sub-layer, in the sizes of the workload."""
        raise NotImplementedError

    @classmethod
    def needs(cls, config: Any, workload: Workload) -> str | None:
        if workload.level is Level.CORE:
            return f"{cls.package} has no core separate from its projections"
        return super().needs(config, workload)


class Shared(Layer):
    """A package's sub-layer whose linear maps are replaced by those of the mechanism's own class.

    Parameters are saved and loaded under the names of the mechanism's class only.
    """

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.register_state_dict_post_hook(saved_once)
        self.register_load_state_dict_post_hook(loaded_once)


def saved_once(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Drop the parameters of `package_layer` from a saved state."""
    for key in [key for key in state if key.startswith(f"{prefix}package_layer.")]:
        del state[key]


def loaded_once(module: nn.Module, incompatible: Any) -> None:
    """Do not report parameters of `package_layer` as missing from a loaded state."""
    missing = incompatible.missing_keys
    missing[:] = [key for key in missing if "package_layer" not in key.split(".")]


class Packed(nn.Module):
    """Several linear maps of the same input as one product: [..., D] to [..., Σ outputs].

    A package that has them as one parameter puts nothing together in a pass. So without gradients
    what was put together is kept, until a parameter is written to.
    """

    def __init__(self, *linears: nn.Linear) -> None:
        super().__init__()
        self.linears: Any = nn.ModuleList(linears)
        self.kept: dict[str, tuple[list[Any], Tensor]] = {}  # by name, with what it is of

    @property
    def weight(self) -> Tensor:
        return self.together("weight")

    @property
    def bias(self) -> Tensor | None:
        return None if self.linears[0].bias is None else self.together("bias")

    def together(self, name: str) -> Tensor:
        """The parameters of this name of all maps, one below the other."""
        parameters = [getattr(linear, name) for linear in self.linears]
        can_change = pytorch.is_grad_enabled() or parameters[0].is_inference()
        if can_change or pytorch.compiler.is_compiling():
            return self.arranged(cat(parameters))
        state = [(id(p), p._version, p.dtype, p.device) for p in parameters]
        if name not in self.kept or self.kept[name][0] != state:
            self.kept[name] = state, self.arranged(cat(parameters))
        return self.kept[name][1]

    def arranged(self, rows: Tensor) -> Tensor:
        """The rows of all maps in the order in which the package has them."""
        return rows

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


def not_multiple_reason(workload: Workload, of: int, least: int = 1) -> str | None:
    """Why the package refuses a length that is too short or not a multiple of `of`, or None."""
    if workload.seq_len % of or workload.seq_len < least:
        more = f" of at least {least}" if least > of else ""
        return f"N = {workload.seq_len} is not a multiple of {of}{more}, which the package needs"
    return None
