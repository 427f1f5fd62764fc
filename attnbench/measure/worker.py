"""One measuring process: it builds cases, times them lap by lap, and measures their memory.

The measured tree's package may be an older one: of it this file uses only the registry, the
contract and the model. Questions and answers are plain data; whatever a mechanism raises becomes an
outcome with its reason.
"""

import gc
import itertools
import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import msgspec
import torch

from attnbench import contract
from attnbench.contract import Attention, Card
from attnbench.device import Device, Meter, Stopwatch, find
from attnbench.measure import allocator, compiling, oddities
from attnbench.measure.digits import relative_error
from attnbench.measure.environment import environment, load
from attnbench.measure.server import described, end_children
from attnbench.measure.subject import Subject, iteration
from attnbench.measure.timing import (
    Iterate,
    increments,
    is_away,
    is_cold,
    sample,
    spent_s,
    warm_up,
)
from attnbench.measure.tracing import traced
from attnbench.records import Case, Causality, Clock, Level, Mode, Option, Sample, Workload
from attnbench.registry import GROUP, card, names
from attnbench.run.workers import Answer, left_running
from attnbench.verify.flops import counted_flops

# how torch, cuBLAS and cuDNN say that an allocation was refused
OUT_OF_MEMORY = (
    *("can't allocate memory", "out of memory", "not enough memory"),
    *("cublas_status_alloc_failed", "cublas_status_not_initialized", "cudnn_status_alloc_failed"),
)
OFF = "off"  # autocast, as usual
SHORT_S = 0.01  # shorter iterations first run untimed: other processes have used the caches
REHEARSAL_S = 0.1  # for which they go on while pages fault
UNHELD_S = 0.002  # of samples that show launches: long against one wait for the device
EXTRA_SIZE = 64  # rows of the square matrices whose products are the extra work
CALIBRATION_S, PRODUCTS = 0.3, 100
LEFT_BYTES = 1 << 20  # graphs leave less, the state of random numbers
COLD_S = 2.0  # a first prefill below this is mostly warm-up, and does not count
PREFILLS_S, PREFILLS = 0.2, 5  # further ones take up to this time, and are at most this many


class Unmeasured(Exception):
    """Why a case is not measured: an outcome, and the reason in the text."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


# an older tree has no forms of other packages
Unusable = getattr(contract, "Unusable", Unmeasured)


class Worker:
    """Answers for one source tree, or for this package if `tree` is None.

    `own`: only mechanisms of the tree itself count, not those of an installed package.
    `weighs`: this process measures memory, so freed pages go back to the system; one that measures
    time keeps them. Either is replaced once it keeps more than `keep_bytes` after a case.
    """

    def __init__(
        self,
        tree: str | None,
        seed: int,
        own: bool = False,
        weighs: bool = False,
        keep_bytes: float = math.inf,
        limit_bytes: int | None = None,
    ) -> None:
        self.tree, self.own, self.seed = Path(tree) if tree else None, own, seed
        self.device = cache(find)
        self.built: Any = None
        self.keep_bytes = keep_bytes + allocator.private_bytes()
        allocator.return_pages() if weighs else allocator.keep_pages()
        if limit_bytes is not None:
            allocator.limit(limit_bytes)

    def answer(self, do: str, **asked: Any) -> Answer:
        """What the method `do` gives; an exception of a mechanism becomes an outcome."""
        try:
            return {"outcome": "ok", **getattr(self, do)(**asked)}
        except Unmeasured as error:
            return {"outcome": error.outcome, "reason": str(error)}
        except Unusable as error:
            return {"outcome": "unsupported", "reason": str(error)}
        except (Exception, SystemExit) as error:
            outcome = "oom" if is_out_of_memory(error) else "failed"
            return {"outcome": outcome, "reason": described(error)}

    def environment(self, device: str, threads: int, dtype: str) -> Answer:
        """This machine, versions, and measured peak rates."""
        return {"environment": asdict(environment(device, threads, dtype))}

    def forms(self, mechanism: str) -> Answer:
        """Names of the forms that the tree itself computes, and of those that torch compiles."""
        forms = self.find_card(mechanism).forms
        own = tuple(name for name, form in forms.items() if not getattr(form, "package", ""))
        compiled = [name for name, form in forms.items() if getattr(form, "compiles", False)]
        return {"forms": own, "compiled": compiled}

    def build(
        self,
        warmup_s: float = 0.0,
        cold: bool = False,
        cuda_graphs: bool = False,
        extra: int = 0,
        every: int = 1,
        suspicious: bool = False,
        sparing: bool = False,
        clock: str = Clock.CPU,
        faulting_s: float = 0.0,
        probed: bool = False,
        **asked: Any,
    ) -> Answer:
        """Build a case, check one iteration, and warm up.

        If `suspicious`, `finish` looks for odd behaviour of the mechanism. Every `every`-th
        iteration computes `extra` products more. If `sparing`, large freed tensors go back to the
        system. With `cuda_graphs`, the iteration is captured once it is checked. `clock` counts
        where there is no device time; if `probed`, the speed of the core is measured beside each
        sample. The answer has `iteration_s`, the time of one with all it takes, and `wall_s`, what
        passes meanwhile.
        """
        allocator.keep_pages(large=not sparing)
        begun, load_before, state = time.perf_counter(), load(), torch_state()
        card, _, case = self.resolve(**asked)
        subject = Subject(card, case, self.seed, capturable=cuda_graphs)
        device = self.device(case.workload.device)
        if subject.compiles:
            compiling.load(device)
        if extra:
            work = slowed(subject.forward, extra, every, device.torch_name)
            subject.forward = work  # type: ignore[method-assign]  # for this subject alone
        meter = device.meter(probed)
        start_watch = partial(device.stopwatch, cold, Clock(clock))
        watch = start_watch()
        iterate, clear = iteration(subject), subject.clear
        setup_s = time.perf_counter() - begun
        ttft_s = prefilled(subject, start_watch(), device.meter()) if subject.decodes else None
        compiling_s = compiling.first_s(iterate, clear, device) if subject.compiles else None
        kept: list[torch.Tensor] = []
        faulted, waited = increments(meter.faults), increments(meter.waited)
        with oddities.watched(subject) if suspicious else nullcontext() as passed:
            first = sample(lambda lap: kept.append(iterate(lap)), clear, watch, 1)
        if wrong := subject.check(kept.pop()):
            on = autocast()
            raise Unmeasured("failed", wrong + f"; autocast is on: {on}" * (on != OFF))
        if cuda_graphs:
            iterate, clear = captured(device, subject), lambda: None
            watch = start_watch()
            first = sample(iterate, clear, watch, 1)
        warm = warm_up(iterate, clear, watch, first, warmup_s, faulted, faulting_s)
        late = warm[len(warm) // 2 :]
        wall_s = median(spent_s([each]) for each in late)
        iteration_s = cost_s = median(each.seconds for each in late)
        if watch.hiding:  # hiding the launches of one takes longer than they do
            cost_s = wall_s = sample(iterate, clear, watch, 1).wall_s
        elif is_away(warm, waited()):
            iteration_s = cost_s = wall_s
        values = {"setup_s": setup_s, "warmup_s": spent_s(warm), "warmup_iterations": len(warm)}
        values |= known(ttft_s=ttft_s, load_before=load_before)
        if compiling_s is not None:
            values["compile_s"] = max(0.0, compiling_s - first.wall_s)
        self.built = SimpleNamespace(
            subject=subject,
            iterate=iterate,
            clear=clear,
            watch=watch,
            device=device,
            meter=meter,
            state=state,
            values=values,
            iteration_s=iteration_s,
            passed=passed,
            sparing=sparing,
            graphs=compiling.graphs(),
        )
        # a collection would fall into the samples of a single process
        gc.collect()
        gc.disable()
        return {"form": case.form, "iteration_s": cost_s, "wall_s": wall_s}

    def lap(self, iterations: int, rehearse: bool = False, left_s: float = math.inf) -> Answer:
        """One sample of the case that was built; with `rehearse`, first a short one untimed.

        A sample that hides launches follows a short one that shows them, for its wall time. A
        disturbed one is taken again, as often as its meter and the `left_s` of the budget allow,
        and kept if it stays so.
        """
        built, begun = self.built, time.perf_counter()
        rehearse = rehearse and built.iteration_s < SHORT_S

        def timed(count: int, hide: bool = True) -> Sample:
            return sample(built.iterate, built.clear, built.watch, count, hide)

        built.meter.ready()
        if rehearse:
            rehearsed(partial(timed, 1), built.meter.faults)
        unheld_s = None
        if built.watch.hiding:
            count = min(iterations, math.ceil(UNHELD_S / built.iteration_s))
            unheld_s = timed(count, hide=False).wall_s / count
        taken = metered(built.meter, partial(timed, iterations))
        for take in itertools.count(1):
            if not built.meter.again(take, left_s - (time.perf_counter() - begun)):
                break
            if rehearse:  # the meter has used the caches too
                rehearsed(partial(timed, 1), built.meter.faults)
            taken = metered(built.meter, partial(timed, iterations))
        if taken.seconds <= 0:
            raise Unmeasured("failed", "by the device's clock a sample took no time")
        return {"sample": taken._replace(unheld_s=unheld_s)}

    def finish(self) -> Answer:
        """Drop the case; return values and notes since its build began.

        `spoiled` says that the process should measure nothing else: the mechanism has changed it,
        or it keeps more freed memory than it may, in pieces that hold no large tensor.
        """
        built, self.built = self.built, None
        values = built.values | built.meter.values() | known(load_after=load())
        recompiles = compiling.graphs() - built.graphs
        if built.subject.compiles or recompiles:
            values["recompiles"] = recompiles
        again = f"was compiled again while it was timed ({recompiles} graphs)"
        changed, on = changes(built.state), built.state["autocast"]
        notes = {
            "changed": changed,
            "odd": oddities.odd(built.subject, built.passed, self.seed) if built.passed else "",
            **left_running(end_children()),
            **built.device.notes(built.watch),
            **built.meter.notes(),
            "recompiled": again * bool(recompiles),
            "autocast": on * (on != OFF),
        }
        if built.sparing:
            notes["allocator"] = "pages kept, but those of large tensors"
        device = built.device
        del built
        gc.enable()
        gc.collect()
        device.release()
        spoiled = bool(changed) or self.keeps_too_much()
        notes = {key: note for key, note in notes.items() if note}
        return {"values": values, "notes": notes, "spoiled": spoiled}

    def weigh(self, checked: bool = False, **asked: Any) -> Answer:
        """Peaks, saved bytes and counts of one iteration, and the error against the reference.

        With `checked`, output and gradients are checked first, and the values include parameters
        and forward FLOPs of one layer. `spoiled` says that the process should not measure the
        memory of another case: the device does not allow that, unless only counts matter, as where
        they are `checked`; the mechanism has changed the process or left tensors on the device,
        which a later case might use instead of its own; or the process keeps too much memory of
        the host.
        """
        state = torch_state()
        card, config, case = self.resolve(**asked)
        device, values = self.device(case.workload.device), dict[str, float]()
        before = device.left_bytes()
        form = card.forms[case.form]
        if getattr(form, "compiles", False):
            compiling.load(device)
        if checked:
            subject = Subject(card, case, self.seed)
            check(subject)
            declare = form.step_flops if subject.decodes else form.flops
            values["parameters"] = sum(p.numel() for p in subject.parameters)
            if flops := declare(config, case.workload):
                outside = 0 if case.workload.level is Level.CORE else flops.projections
                values["flops"] = flops.core + outside
            del subject
        peaks, notes = device.weigh(lambda case: Subject(card, case, self.seed), case)
        values |= peaks
        # cards and forms of older trees lack these fields: they declare everything
        declared = getattr(card, "declared", True)
        if not declared or getattr(form, "counted", False):
            values |= counted(Subject(card, case, self.seed))
        if declared and not checked:
            values |= known(error=relative_error(card, case, self.seed))
        if computed_by := package(form):
            notes["package"] = computed_by
        if departs := getattr(form, "departs", ""):
            notes["departs"] = departs
        gc.collect()
        device.release()
        left = device.left_bytes() - before > LEFT_BYTES
        afresh = device.weighs_afresh and not checked
        spoiled = afresh or left or bool(changes(state)) or self.keeps_too_much()
        notes |= left_running(end_children())
        about = {"form": case.form, "case": str(case), "spoiled": spoiled}
        return {"values": values, "notes": notes, **about}

    def keeps_too_much(self) -> bool:
        """Whether the process keeps more memory than it may."""
        return allocator.private_bytes() > self.keep_bytes

    def trace(self, path: str, **asked: Any) -> Answer:
        """Build and warm up a case, trace it to `path`, and return its costliest operators."""
        self.build(**asked)
        built = self.built
        rows = traced(built.iterate, built.clear, built.iteration_s, path)
        return {"operators": rows, "iteration_s": built.iteration_s}

    def resolve(
        self,
        mechanism: str,
        form: str | None,
        options: list[tuple[str, Option]],
        workload: dict[str, Any],
    ) -> tuple[Card, Any, Case]:
        """Card, config and case. Raises `Unmeasured`."""
        card = self.find_card(mechanism)
        always = card.causality is Causality.ALWAYS or workload.get("mode") == Mode.DECODE
        causal = always or workload.get("causal", False)
        w = msgspec.convert({**workload, "causal": causal}, Workload)
        config = card.configure(dict(options))
        if form is not None and form not in card.forms:
            forms = ", ".join(card.forms)
            raise Unmeasured("missing", f"{mechanism} has no form {form!r}; forms: {forms}")
        form = form or card.default(config, w)
        if reason := card.refusal(form, config, w):
            raise Unmeasured("unsupported", reason)
        if w.mode is Mode.DECODE and not hasattr(card.forms[form], "step_flops"):
            raise Unmeasured("unsupported", "cannot decode: this revision measures no decoding")
        self.device(w.device).select()
        chosen = tuple((name, value) for name, value in options)
        return card, config, Case(mechanism=mechanism, form=form, options=chosen, workload=w)

    def find_card(self, mechanism: str) -> Card:
        """This tree's card of a mechanism. Raises `Unmeasured`."""
        if self.tree is None:
            return card(mechanism)
        path, in_file, card_name = mechanism.rpartition(".py:")
        if in_file:
            if not (self.tree / f"{path}.py").is_file():
                raise Unmeasured("missing", f"there is no file {path}.py")
            return card(f"{self.tree}/{path}.py:{card_name}")
        if mechanism not in names():
            raise Unmeasured("missing", f"there is no mechanism {mechanism!r}")
        registered = card(mechanism)
        for file in files_of(mechanism) if self.own else ():
            if not file.is_relative_to(self.tree.resolve()):
                elsewhere = f"{mechanism} comes from {file}, which is not in this repository"
                raise Unmeasured("missing", elsewhere)
        return registered

    def calibrate(self, device: str) -> Answer:
        """Seconds of one product of the extra work, by the clock that a check judges by."""
        chosen = self.device(device)
        chosen.select()
        watch, took_s, count = chosen.stopwatch(clock=Clock.CPU), 0.0, 0
        work = slowed(lambda: None, PRODUCTS, device=chosen.torch_name)

        def iterate(lap: Callable[[str], None]) -> None:
            work()
            lap("forward")

        work()
        while took_s < CALIBRATION_S:
            took_s += sample(iterate, lambda: None, watch, 1).seconds
            count += PRODUCTS
        return {"seconds": took_s / count}


def known(**values: float | None) -> dict[str, float]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def files_of(mechanism: str) -> tuple[Path, ...]:
    """The files that a registered mechanism was loaded from."""
    own = f"attnbench.mechanisms.{mechanism}"
    offered = [point.module for point in entry_points(group=GROUP, name=mechanism)]
    modules = [sys.modules.get(name) for name in ([own] if own in sys.modules else offered)]
    files = [getattr(module, "__file__", None) for module in modules]
    return tuple(Path(file).resolve() for file in files if file)


def captured(device: Device, subject: Subject) -> Iterate:
    """The iteration as CUDA graphs. Raises `Unmeasured` if it cannot be captured."""
    try:
        return device.captured(subject)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        first: BaseException = error  # the end of a capture that failed is an error by itself
        while first.__context__ is not None:
            first = first.__context__
        reason = f"a CUDA graph cannot capture it: {described(first)}"
        raise Unmeasured("unsupported", reason) from error


def metered(meter: Meter, take: Callable[[], Sample]) -> Sample:
    """A sample, with what the meter saw of it."""
    with meter:
        taken = take()
    return taken._replace(
        waited_s=meter.waited_s, disturbed=meter.disturbed, probe_s=meter.probe_s
    )


def rehearsed(take: Callable[[], Sample], faults: Callable[[], int]) -> None:
    """Run an iteration untimed, and further ones while pages fault."""
    end, faulted = time.perf_counter() + REHEARSAL_S, increments(faults)
    taken = take()
    while is_cold(faulted(), taken) and time.perf_counter() < end:
        taken = take()


def prefilled(subject: Subject, watch: Stopwatch, meter: Meter) -> float | None:
    """The time to the first token: the median in seconds of a few prefills; None without a prompt.

    Raises `Unmeasured`.
    """
    output: list[torch.Tensor | None] = []

    def iterate(lap: Callable[[str], None]) -> None:
        output[:] = [subject.prefill()]
        lap("forward")

    prefill = partial(metered, meter, partial(sample, iterate, lambda: None, watch, 1))
    taken = [prefill()]
    if output[0] is None:
        return None
    if wrong := subject.check(output[0]):
        raise Unmeasured("failed", f"after the prompt, {wrong}")
    if spent_s(taken) <= COLD_S:
        taken.clear()
    while spent_s(taken) < PREFILLS_S and len(taken) < PREFILLS:
        taken.append(prefill())
    return median(one.seconds for one in taken)


def check(subject: Subject) -> None:
    """Check the output and the gradients of one iteration. Raises `Unmeasured`."""
    subject.prefill()
    wrong = subject.check(iteration(subject)(lambda phase: None))
    tensors = (*subject.parameters, *subject.inputs) if subject.training else ()
    gradients = [t.grad for t in tensors if t.grad is not None]
    if not wrong and not all(gradient.isfinite().all() for gradient in gradients):
        wrong = "a gradient is not finite"
    subject.clear()
    if wrong:
        raise Unmeasured("failed", wrong)


def counted(subject: Subject) -> dict[str, float]:
    """Parameters and forward FLOPs of a module that does not declare them."""
    mask = subject.mask
    flops = counted_flops(subject.module, *subject.inputs, *([] if mask is None else [mask]))
    return {"parameters": sum(p.numel() for p in subject.parameters), "flops": flops}


def package(form: type[Attention]) -> str:
    """`transformers 4.46.3`: what computes the form, if it is not the tree itself; or nothing."""
    name = getattr(form, "package", "")
    try:
        return f"{name} {version(name)}" if name else ""
    except PackageNotFoundError:  # importable, but not installed by an installer
        return str(name)


def torch_state() -> dict[str, Any]:
    """Settings of the whole process that a mechanism must not change."""
    return {
        "default dtype": torch.get_default_dtype(),
        "number of threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "matmul precision": matmul_precision(),
        "autocast": autocast(),
    }


def matmul_precision() -> str:
    """How precise float32 products are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch 2.9, that the setting has a new name
        return torch.get_float32_matmul_precision()


def autocast() -> str:
    """The kinds of device with autocast on, each with its type (`cpu bfloat16`), or `OFF`."""
    on = (kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind))
    types = (f"{kind} {torch.get_autocast_dtype(kind)}".replace("torch.", "") for kind in on)
    return ", ".join(types) or OFF


def changes(before: Mapping[str, Any]) -> str:
    """What has changed since in `torch_state`: `number of threads 2 to 7; …`, or nothing."""
    now = torch_state().items()
    return "; ".join(f"{name} {before[name]} to {new}" for name, new in now if before[name] != new)


def slowed(
    work: Callable[[], Any], products: int, every: int = 1, device: str = "cpu"
) -> Callable[[], Any]:
    """The work with `products` extra products of small matrices in every `every`-th call."""
    a = torch.full((EXTRA_SIZE, EXTRA_SIZE), 1 / EXTRA_SIZE, device=device)
    out = torch.empty_like(a)
    calls = itertools.count(1)

    def both() -> Any:
        if next(calls) % every == 0:
            with torch.no_grad():
                for _ in range(products):
                    torch.mm(a, a, out=out)
        return work()

    return both


def is_out_of_memory(error: BaseException) -> bool:
    """torch reports a refused allocation as a RuntimeError on a CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in OUT_OF_MEMORY)
