"""One measuring process: it builds cases, times them lap by lap, and measures their memory.

Questions and answers are plain data; whatever a mechanism raises becomes an outcome with its
reason.
"""

import gc
import math
import os
import threading
import time
from collections import deque
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch

from attnbench.attention.card import Card
from attnbench.devices.finding import find
from attnbench.devices.protocol import Device
from attnbench.errors import AttnbenchError
from attnbench.measure import allocator, parity
from attnbench.measure.built import Built, Timing
from attnbench.measure.cards import Cards, sources
from attnbench.measure.environment import environment
from attnbench.measure.memory_and_counts import measure_memory_and_counts
from attnbench.measure.server import Answering, Unmeasured, end_children
from attnbench.measure.subject import subject_of
from attnbench.records import Attempt, Case
from attnbench.run.process import Answer, left_running
from attnbench.verify.fitting import fitted
from attnbench.verify.panel import row
from attnbench.verify.repeating import repeated
from attnbench.verify.trial import NotApplicable, Trial

NAMES = ("mechanism", "form", "options", "workload")  # what names a case
EVERY_S = 0.025  # from probe to probe
SIZE = 256  # rows of the matrices, whose product takes about half a millisecond
MOST = 1 << 16  # probes kept that have not been read


class Worker(Answering):
    """Answers for one source tree, or for this package if `tree` is None.

    `own`: only mechanisms of the tree itself count, not those of an installed package.
    `measures_memory`: a process that measures time keeps freed pages.
    """

    built: Built  # the case that is measured

    def __init__(
        self,
        tree: str | None,
        seed: int,
        own: bool = False,
        measures_memory: bool = False,
        limit_bytes: int | None = None,
    ) -> None:
        self.cards, self.seed = Cards(Path(tree) if tree else None, own), seed
        self.probes, self.state = cache(Probes), torch_state()
        if not measures_memory:
            allocator.keep_pages()
        if limit_bytes is not None:
            allocator.limit(limit_bytes)

    def environment(self, device: str, threads: int, dtypes: list[str]) -> Answer:
        """This machine, versions, and measured peak rates."""
        return {"environment": asdict(environment(device, threads, dtypes))}

    def forms(self, mechanism: str) -> Answer:
        """Names of the forms that the tree itself computes, and torch does not compile."""
        card = self.cards.find(mechanism)
        return {"forms": [name for name in card.own_forms if not card.forms[name].compiles]}

    def loads(self, mechanism: str, device: str) -> Answer:
        """Its forms, or why it cannot be loaded, and the files of the tree that are loaded."""
        find(device)
        forms = self.answer("forms", mechanism=mechanism)
        return {**forms, "files": sources(self.cards.tree) if self.cards.tree else ()}

    def build(self, **asked: Any) -> Answer:
        """Build a case, check one iteration, and warm up; what is asked beside is its `Timing`.

        The answer has `iteration_s`, the time that an iteration costs in full, and `wall_s`, its
        wall time.
        """
        card, _, case, device = self.resolved(asked)
        self.built = built = Built(card, case, self.seed, device, Timing(**asked))
        return {"form": case.form, "iteration_s": built.cost_s, "wall_s": built.wall_s}

    def lap(self, iterations: int, rehearse: bool = False, left_s: float = math.inf) -> Answer:
        """One sample of the case that was built."""
        return {"sample": self.built.lap(iterations, rehearse, left_s)}

    def probed(self, core: int) -> Answer:
        """Seconds of each probe of the core since the last call; the first call starts them."""
        return {"probes": self.probes(core).taken()}

    def finish(self, left_s: float = math.inf) -> Answer:
        """Drop the case; return values and notes since its build began.

        `needs_new_process` says that this one should measure nothing else, as the mechanism has
        changed it.
        """
        changed, device = self.changes(), self.built.device
        values, notes = self.built.finish(left_s)
        del self.built
        notes |= {"changed": changed, **left_running(end_children())}
        gc.enable()
        gc.collect()
        device.release()
        notes = {key: note for key, note in notes.items() if note}
        return {"values": values, "notes": notes, "needs_new_process": bool(changed)}

    def measure_memory(self, **asked: Any) -> Answer:
        """What `measure_memory_and_counts` finds of a case.

        `needs_new_process` says that this one should measure nothing else: what it keeps of a case
        would count for the next, except where only counts matter, as where they are `checked`; or
        the mechanism changed it.
        """
        card, config, case, device = self.resolved(asked)
        values, notes = measure_memory_and_counts(card, config, case, device, self.seed, **asked)
        gc.enable()
        gc.collect()
        device.release()
        notes |= left_running(end_children())
        needs_new_process = not asked.get("checked") or bool(self.changes())
        about = {"form": case.form, "case": str(case), "needs_new_process": needs_new_process}
        return {"values": values, "notes": notes, **about}

    def outputs(self, path: str, keeps: bool, **asked: Any) -> Answer:
        """Keep in a file what a case computes, or compare it with what is kept there."""
        card, _, case, _ = self.resolved(asked)
        subject = subject_of(card, case, self.seed)
        return (
            parity.keep(subject, path) if keeps else parity.compare(subject, card.tolerance, path)
        )

    def fitted(self, mechanism: str, device: str, lengths: Any = (), **asked: Any) -> Answer:
        """How a user's function is called as a mechanism, and what is to be tried of it."""
        find(device).select()
        raced = tuple((tokens, batch) for tokens, batch in lengths)
        try:
            card = self.cards.find(mechanism)
            return {"kernel": asdict(fitted(card, device=device, lengths=raced, **asked))}
        except AttnbenchError as error:
            raise Unmeasured("failed", str(error)) from error

    def attempted(
        self,
        mechanism: str,
        form: str,
        options: dict[str, Any],
        device: str,
        attempt: dict[str, Any],
        left_s: float,
    ) -> Answer:
        """What is found of one attempt; no row where it does not apply to the mechanism."""
        find(device).select()
        card, tried = self.cards.find(mechanism), msgspec.convert(attempt, Attempt)
        trial = Trial(card, card.configure(options), form, tried.causal, device)
        try:
            found = repeated(trial, tried, left_s) if tried.repeats else row(trial, tried)
        except NotApplicable:
            return {"row": None, "changed": ""}
        return {"row": asdict(found), "changed": self.changes()}

    def trace(self, path: str, **asked: Any) -> Answer:
        """Build and warm up a case, and trace it to `path`."""
        self.build(**asked)
        self.built.trace(path)
        return {}

    def resolved(self, asked: dict[str, Any]) -> tuple[Card, Any, Case, Device]:
        """Card, config, case, and its device, on which this process now is; takes what names the
        case out of what is `asked`.

        Raises `Unmeasured`.
        """
        card, config, case = self.cards.resolve(*(asked.pop(name) for name in NAMES))
        device = find(case.workload.device)
        device.select()
        return card, config, case, device

    def changes(self) -> str:
        """What has changed in torch since this process began: `number of threads 2 to 7; …`."""
        both = zip(self.state.items(), torch_state().values(), strict=True)
        return "; ".join(f"{name} {was} to {now}" for (name, was), now in both if was != now)


class Probes:
    """CPU seconds of a fixed piece of work, repeated to tell the speed of a core.

    A thread takes them until the process ends.
    """

    def __init__(self, core: int) -> None:
        os.sched_setaffinity(0, {core})
        self.found: deque[float] = deque(maxlen=MOST)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        """Probe the core again and again."""
        a = torch.full((SIZE, SIZE), 1 / SIZE)
        out = torch.empty_like(a)
        while True:
            time.sleep(EVERY_S)
            torch.mm(a, a, out=out)  # others have used the caches
            begun = time.thread_time()
            torch.mm(a, a, out=out)
            self.found.append(time.thread_time() - begun)

    def taken(self) -> list[float]:
        """Those since this was last called."""
        return [self.found.popleft() for _ in range(len(self.found))]


def torch_state() -> dict[str, Any]:
    """Settings of the whole process that a mechanism must not change."""
    kinds = (kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind))
    on = (f"{kind} {torch.get_autocast_dtype(kind)}".replace("torch.", "") for kind in kinds)
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # newer settings, which this one cannot express
        precision = "set for each backend"
    return {
        "default dtype": torch.get_default_dtype(),
        "number of threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "detection of anomalies": torch.is_anomaly_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "matmul precision": precision,
        "autocast": ", ".join(on) or "off",
    }
