"""What one side of a comparison answers: counts of a case, and samples of its time.

Loaded over the package of the side's own tree, which may be an older one: of that it uses the
registry, the contract, the model and the records, and nothing else.
"""

import gc
import itertools
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from attnbench.contract import Card
from attnbench.measure import memory
from attnbench.measure.device import CudaStopwatch
from attnbench.measure.subject import Subject, iteration
from attnbench.measure.timing import HostStopwatch, sample
from attnbench.measure.worker import (
    M_MMAP_THRESHOLD,
    RESIDENT_MMAP_BYTES,
    describe,
    is_out_of_memory,
    keep_pages,
    mallopt,
    of_its_own,
    rehearse,
)
from attnbench.records import Case, Causality, Level, Settings, Workload
from attnbench.registry import GROUP, card, names

EXTRA_SIZE = 64  # of the square matrices whose products are the extra work
CALIBRATION_S = 0.3
WARM_S, WARM_ITERATIONS = 0.05, 2  # the check and the other sides' turns come before

Answer = Mapping[str, Any]


class Missing(Exception):
    """The tree has no such mechanism or form."""


class Refused(Exception):
    """The mechanism's card says that it cannot run the workload here."""


class Answers:
    """What one process knows: its tree, and the subjects that it has built.

    `own`: only mechanisms of the tree itself are wanted, not those of a package installed beside.
    """

    def __init__(self, tree: str, own: bool, seed: int) -> None:
        self.tree, self.own, self.seed = Path(tree), own, seed
        self.subjects: dict[str, SimpleNamespace] = {}

    def answer(self, do: str, **asked: Any) -> Answer:
        """The answer to one question; what a mechanism raises becomes an outcome."""
        questions: dict[str, Callable[..., Answer]] = {
            "count": self.count,
            "build": self.build,
            "time": self.time,
            "forms": self.forms,
            "calibrate": calibrate,
            "clear": self.clear,
        }
        try:
            return questions[do](**asked)
        except Missing as error:
            return {"outcome": "missing", "reason": str(error)}
        except Refused as error:
            return {"outcome": "unsupported", "reason": str(error)}
        except (Exception, SystemExit) as error:
            memory = isinstance(error, Exception) and is_out_of_memory(error)
            return {"outcome": "oom" if memory else "failed", "reason": describe(error)}

    def count(self, **asked: Any) -> Answer:
        """What is counted of one iteration, after its output and gradients were checked."""
        its, config, case = self.resolve(**asked)
        subject = Subject(its, case, self.seed)
        if wrong := check(subject):
            return {"outcome": "failed", "reason": wrong}
        parameters = sum(p.numel() for p in subject.parameters)
        del subject
        values = self.weighed(its, case)
        flops = its.forms[case.form].flops(config, case.workload)  # of one layer
        work = flops.core + (0 if case.workload.level is Level.CORE else flops.projections)
        # what a module without a card costs is counted, not declared
        values = {"parameters": parameters, "flops": work, **values}
        return {"outcome": "ok", "values": values, "form": case.form, "case": str(case)}

    def weighed(self, its: Card, case: Case) -> dict[str, float]:
        """Peaks, bytes saved and operators of one iteration."""
        if case.workload.device.startswith("cuda"):
            values, _ = memory.on_cuda(Subject(its, case, self.seed))
        else:
            mallopt(M_MMAP_THRESHOLD, RESIDENT_MMAP_BYTES)
            rehearse(its, case, Settings(seed=self.seed))
            values, _ = memory.on_cpu(lambda: Subject(its, case, self.seed))
        # an older card does not know the word: it declares everything
        if not getattr(its, "declared", True):
            values |= of_its_own(Subject(its, case, self.seed))
        return values

    def build(self, name: str, extra: int = 0, every: int = 1, **asked: Any) -> Answer:
        """Build, check and warm up a subject; each `every`-th call has `extra` products more."""
        keep_pages()
        its, _, case = self.resolve(**asked)
        subject = Subject(its, case, self.seed)
        if wrong := check(subject):
            return {"outcome": "failed", "reason": wrong}
        if extra:
            subject.forward = burdened(subject.forward, extra, every)
        watch = CudaStopwatch() if case.workload.device.startswith("cuda") else HostStopwatch()
        self.subjects[name] = SimpleNamespace(
            iterate=iteration(subject), clear=subject.clear, watch=watch
        )
        begun, count = time.perf_counter(), 0
        while count < WARM_ITERATIONS or time.perf_counter() - begun < WARM_S:
            self.time(name, 1)
            count += 1
        # a collection would fall into the samples of one side alone
        gc.collect()
        gc.freeze()
        gc.disable()
        return {"outcome": "ok", "form": case.form}

    def time(self, name: str, iterations: int) -> Answer:
        """Seconds of one sample: the process's time on a CPU, the device's where it has a clock."""
        it = self.subjects[name]
        taken = sample(it.iterate, it.clear, it.watch, iterations)
        seconds = taken.cpu_s if taken.device_s is None else taken.device_s
        return {"outcome": "ok", "seconds": seconds}

    def clear(self) -> Answer:
        """Forget the subjects."""
        self.subjects.clear()
        return {"outcome": "ok"}

    def forms(self, mechanism: str) -> Answer:
        """Names of the forms of a mechanism."""
        return {"outcome": "ok", "forms": tuple(self.card(mechanism).forms)}

    def resolve(
        self, mechanism: str, form: str | None, options: list, workload: dict
    ) -> tuple[Card, Any, Case]:
        """Card, config and case. Raises `Missing` or `Refused`."""
        its = self.card(mechanism)
        causal = its.causality is Causality.ALWAYS or workload.get("causal", False)
        w = Workload.from_json({**workload, "causal": causal})
        config = its.configure(dict(options))
        if form is not None and form not in its.forms:
            raise Missing(f"{mechanism} has no form {form!r}; forms: {', '.join(its.forms)}")
        form = form or its.default(config, w)
        if reason := its.refusal(form, config, w):
            raise Refused(reason)
        chosen = tuple((name, value) for name, value in options)
        return its, config, Case(mechanism=mechanism, form=form, options=chosen, workload=w)

    def card(self, mechanism: str) -> Card:
        """The card that this tree has of a name. Raises `Missing`."""
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


def burdened(work: Callable[[], Any], products: int, every: int = 1) -> Callable[[], Any]:
    """The work with `products` more products of small matrices at each `every`-th call."""
    a = torch.full((EXTRA_SIZE, EXTRA_SIZE), 1 / EXTRA_SIZE)
    out = torch.empty_like(a)
    calls = itertools.count(1)

    def both() -> Any:
        if next(calls) % every == 0:
            with torch.no_grad():
                for _ in range(products):
                    torch.mm(a, a, out=out)
        return work()

    return both


def calibrate() -> Answer:
    """Seconds of one product of the extra work."""
    work, count = burdened(lambda: None, 100), 0
    work()
    begun = time.process_time()
    while time.process_time() - begun < CALIBRATION_S:
        work()
        count += 100
    return {"outcome": "ok", "seconds": (time.process_time() - begun) / count}
