"""What one measuring process answers: it builds cases, times them lap by lap, and weighs them.

The measured tree's package may be an older one: of that it uses the registry, the contract and the
model, and nothing else. Questions and answers are plain data; whatever a mechanism raises becomes
an outcome with its reason.
"""

import gc
import itertools
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from importlib.metadata import entry_points
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import msgspec
import torch

from attnbench.contract import Card
from attnbench.device import find
from attnbench.measure import allocator, digits, oddities
from attnbench.measure.environment import environment, load
from attnbench.measure.server import end_children
from attnbench.measure.subject import Subject, iteration
from attnbench.measure.timing import sample, warm_up
from attnbench.records import Case, Causality, Level, Option, Workload
from attnbench.registry import GROUP, card, names
from attnbench.verify.flops import counted_flops

# how torch, cuBLAS and cuDNN say that an allocation was refused
OUT_OF_MEMORY = (
    *("can't allocate memory", "out of memory", "not enough memory"),
    *("cublas_status_alloc_failed", "cublas_status_not_initialized", "cudnn_status_alloc_failed"),
)
SHORT_S = 0.01  # the other processes have used the caches; a shorter iteration runs once untimed
EXTRA_SIZE = 64  # of the square matrices whose products are the extra work
CALIBRATION_S, PRODUCTS = 0.3, 100

Answer = Mapping[str, Any]


class Missing(Exception):
    """The tree has no such mechanism or form."""


class Refused(Exception):
    """The mechanism's card says that it cannot run the workload here."""


class Worker:
    """One process's tree, and the cases that it has built.

    `own`: only mechanisms of the tree itself are wanted, not those of an installed package.
    `weighs`: this process measures memory, so freed pages go back to the system; in one that
    measures time they are kept, and after a case `keep_bytes` of them at most.
    """

    def __init__(
        self,
        tree: str | None,
        seed: int,
        own: bool = False,
        weighs: bool = False,
        keep_bytes: float = 0.0,
        limit_bytes: int | None = None,
    ) -> None:
        self.tree, self.own, self.seed = Path(tree) if tree else None, own, seed
        self.built: Any = None
        self.keep_bytes = keep_bytes + allocator.private_bytes()
        allocator.return_pages() if weighs else allocator.keep_pages()
        if limit_bytes is not None:
            allocator.limit(limit_bytes)

    def answer(self, do: str, **asked: Any) -> Answer:
        """The answer to one question; what a mechanism raises becomes an outcome."""
        questions: dict[str, Callable[..., Answer]] = {
            "environment": self.environment,
            "forms": self.forms,
            "build": self.build,
            "lap": self.lap,
            "finish": self.finish,
            "weigh": self.weigh,
            "calibrate": calibrate,
        }
        try:
            return questions[do](**asked)
        except Missing as error:
            return {"outcome": "missing", "reason": str(error)}
        except Refused as error:
            return {"outcome": "unsupported", "reason": str(error)}
        except (Exception, SystemExit) as error:
            return {
                "outcome": "oom" if is_out_of_memory(error) else "failed",
                "reason": described(error),
            }

    def environment(self, device: str, threads: int, dtype: str) -> Answer:
        """This machine, its versions and its measured peaks."""
        return {"outcome": "ok", "environment": asdict(environment(device, threads, dtype))}

    def forms(self, mechanism: str) -> Answer:
        """Names of the forms of a mechanism."""
        return {"outcome": "ok", "forms": tuple(self.card(mechanism).forms)}

    def build(
        self,
        warmup_s: float = 0.0,
        cold: bool = False,
        extra: int = 0,
        every: int = 1,
        suspicious: bool = False,
        **asked: Any,
    ) -> Answer:
        """Build a case, check one iteration, and warm up.

        If `suspicious`, `finish` looks for what is odd about the mechanism. Each `every`-th
        iteration has `extra` products more. The answer has `iteration_s`, the seconds of one.
        """
        begun, load_before, state = time.perf_counter(), load(), torch_state()
        its, _, case = self.resolve(**asked)
        subject = Subject(its, case, self.seed)
        device = find(case.workload.device)
        if extra:
            work = burdened(subject.forward, extra, every, device.torch_name)
            subject.forward = work  # type: ignore[method-assign]  # for this subject alone
        watch = device.stopwatch(cold)
        iterate, setup_s = iteration(subject), time.perf_counter() - begun
        kept: list[torch.Tensor] = []
        with oddities.watched(subject) if suspicious else nullcontext() as passed:
            first = sample(lambda lap: kept.append(iterate(lap)), subject.clear, watch, 1)
        if wrong := subject.check(kept.pop()):
            return {"outcome": "failed", "reason": wrong}
        warm = warm_up(iterate, subject.clear, watch, first.seconds, warmup_s)
        each_s = median(warm[len(warm) // 2 :])
        values = {"setup_s": setup_s, "warmup_s": sum(warm), "warmup_iterations": len(warm)}
        if load_before is not None:
            values["load_before"] = load_before
        self.built = SimpleNamespace(
            case=case,
            subject=subject,
            iterate=iterate,
            watch=watch,
            device=device,
            state=state,
            readings=device.readings(),
            values=values,
            iteration_s=each_s,
            passed=passed,
        )
        # a collection would fall into the samples of one process alone
        gc.collect()
        gc.disable()
        return {"outcome": "ok", "form": case.form, "iteration_s": each_s}

    def lap(self, iterations: int, rehearse: bool = False) -> Answer:
        """One sample of the case that was built, after an untimed iteration if it is short."""
        it = self.built
        if rehearse and it.iteration_s < SHORT_S:
            sample(it.iterate, it.subject.clear, it.watch, 1)
        taken = sample(it.iterate, it.subject.clear, it.watch, iterations)
        if not it.device.settled():  # what it gives after a pause counts
            taken = sample(it.iterate, it.subject.clear, it.watch, iterations)
        if taken.seconds <= 0:
            return {"outcome": "failed", "reason": "by the device's clock a sample took no time"}
        return {"outcome": "ok", "sample": taken}

    def finish(self) -> Answer:
        """Forget the case; values and notes of the time since its build began.

        `spoiled` says that the process is no longer as it was and should measure nothing else.
        """
        it, self.built = self.built, None
        values = it.values | since(it.readings, it.device.readings())
        if (load_after := load()) is not None:
            values["load_after"] = load_after
        changed = changes(it.state, torch_state())
        odd = oddities.odd(it.subject, it.passed, self.seed) if it.passed else ""
        notes = {"changed": changed, "odd": odd, "processes": left_running()}
        notes |= it.device.notes(it.watch)
        device = it.device
        del it
        gc.enable()
        gc.collect()
        device.release(self.keep_bytes)
        notes = {key: note for key, note in notes.items() if note}
        return {"outcome": "ok", "values": values, "notes": notes, "spoiled": bool(changed)}

    def weigh(self, checked: bool = False, **asked: Any) -> Answer:
        """Peaks, saved bytes and counts of one iteration, and the error against the reference.

        With `checked`, output and gradients are checked first, and the values hold parameters and
        forward FLOPs of one layer.
        """
        its, config, case = self.resolve(**asked)
        values: dict[str, float] = {}
        if checked:
            subject = Subject(its, case, self.seed)
            if wrong := check(subject):
                return {"outcome": "failed", "reason": wrong}
            flops = its.forms[case.form].flops(config, case.workload)
            values["parameters"] = sum(p.numel() for p in subject.parameters)
            values["flops"] = flops.core
            values["flops"] += 0 if case.workload.level is Level.CORE else flops.projections
            del subject
        device = find(case.workload.device)
        peaks, notes = device.weigh(lambda case: Subject(its, case, self.seed), case)
        values |= peaks
        # an older card does not know the word: it declares everything
        if not getattr(its, "declared", True):
            values |= counted(Subject(its, case, self.seed))
        elif not checked and (error := digits.error(its, case, self.seed)) is not None:
            values["error"] = error
        gc.collect()
        if left := left_running():
            notes["processes"] = left
        return {
            "outcome": "ok",
            "values": values,
            "notes": notes,
            "form": case.form,
            "case": str(case),
        }

    def resolve(
        self,
        mechanism: str,
        form: str | None,
        options: list[tuple[str, Option]],
        workload: dict[str, Any],
    ) -> tuple[Card, Any, Case]:
        """Card, config and case. Raises `Missing` or `Refused`."""
        its = self.card(mechanism)
        causal = its.causality is Causality.ALWAYS or workload.get("causal", False)
        w = msgspec.convert({**workload, "causal": causal}, Workload)
        config = its.configure(dict(options))
        if form is not None and form not in its.forms:
            raise Missing(f"{mechanism} has no form {form!r}; forms: {', '.join(its.forms)}")
        form = form or its.default(config, w)
        if reason := its.refusal(form, config, w):
            raise Refused(reason)
        find(w.device).select()
        chosen = tuple((name, value) for name, value in options)
        return its, config, Case(mechanism=mechanism, form=form, options=chosen, workload=w)

    def card(self, mechanism: str) -> Card:
        """The card that this tree has of a name. Raises `Missing`."""
        if self.tree is None:
            return card(mechanism)
        path, in_file, card_name = mechanism.rpartition(".py:")
        if in_file:
            if not (self.tree / f"{path}.py").is_file():
                raise Missing(f"there is no file {path}.py")
            return card(f"{self.tree}/{path}.py:{card_name}")
        if mechanism not in names():
            raise Missing(f"there is no mechanism {mechanism!r}")
        found = card(mechanism)
        for file in files_of(mechanism) if self.own else ():
            if not file.is_relative_to(self.tree.resolve()):
                raise Missing(f"{mechanism} comes from {file}, which is not of this repository")
        return found


def files_of(mechanism: str) -> tuple[Path, ...]:
    """The file that a registered mechanism was loaded from."""
    own = f"attnbench.mechanisms.{mechanism}"
    offered = [point.module for point in entry_points(group=GROUP, name=mechanism)]
    modules = [sys.modules.get(name) for name in ([own] if own in sys.modules else offered)]
    files = [getattr(module, "__file__", None) for module in modules]
    return tuple(Path(file).resolve() for file in files if file)


def check(subject: Subject) -> str:
    """What is wrong with the output or a gradient of one iteration, or nothing."""
    wrong = subject.check(iteration(subject)(lambda phase: None))
    tensors = (*subject.parameters, *subject.inputs) if subject.training else ()
    gradients = [t.grad for t in tensors if t.grad is not None]
    if not wrong and not all(gradient.isfinite().all() for gradient in gradients):
        wrong = "a gradient is not finite"
    subject.clear()
    return wrong


def counted(subject: Subject) -> dict[str, float]:
    """Parameters and forward FLOPs of a module that does not declare them."""
    mask = subject.mask
    flops = counted_flops(subject.module, *subject.inputs, *([] if mask is None else [mask]))
    return {"parameters": sum(p.numel() for p in subject.parameters), "flops": flops}


def left_running() -> str:
    """End what a mechanism has started; a note on it, or nothing."""
    count = end_children()
    what = "process" if count == 1 else "processes"
    return f"started {count} {what} that had to be ended" if count else ""


def torch_state() -> dict[str, Any]:
    """Settings of the whole process that a mechanism has no business changing."""
    return {
        "default dtype": torch.get_default_dtype(),
        "number of threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
    }


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """`number of threads 2 to 7; …`, or nothing."""
    pairs = ((name, before[name], after[name]) for name in before)
    return "; ".join(f"{name} {old} to {new}" for name, old, new in pairs if old != new)


def since(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """The readings after the samples; energy as what was used while they ran."""
    found = dict(after)
    if "energy_j" in before and "energy_j" in after:
        found["energy_j"] = after["energy_j"] - before["energy_j"]
    return found


def burdened(
    work: Callable[[], Any], products: int, every: int = 1, device: str = "cpu"
) -> Callable[[], Any]:
    """The work with `products` more products of small matrices at each `every`-th call."""
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


def calibrate(device: str) -> Answer:
    """Seconds of one product of the extra work, by the clock that a check judges by."""
    chosen = find(device)
    chosen.select()
    watch, spent_s, count = chosen.stopwatch(), 0.0, 0
    work = burdened(lambda: None, PRODUCTS, device=chosen.torch_name)

    def iterate(lap: Callable[[str], None]) -> None:
        work()
        lap("forward")

    work()
    while spent_s < CALIBRATION_S:
        taken = sample(iterate, lambda: None, watch, 1)
        spent_s += taken.cpu_s if taken.device_s is None else taken.device_s
        count += PRODUCTS
    return {"outcome": "ok", "seconds": spent_s / count}


def is_out_of_memory(error: BaseException) -> bool:
    """torch reports a refused allocation as a RuntimeError on a CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in OUT_OF_MEMORY)


def described(error: BaseException) -> str:
    """One line of an exception."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
