"""One measuring process: it builds cases, times them lap by lap, and measures their memory.

Whatever a mechanism raises becomes a failure with its reason.
"""

import gc
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from msgspec import UNSET
from msgspec.structs import replace as with_fields

from attnbench.attention.card import Card
from attnbench.devices.finding import find
from attnbench.devices.protocol import Device
from attnbench.measuring import allocator, parity
from attnbench.measuring.answering import Answering, failure
from attnbench.measuring.built import Built
from attnbench.measuring.cards import Cards, sources
from attnbench.measuring.environment import environment
from attnbench.measuring.memory_and_counts import measure_memory_and_counts
from attnbench.measuring.server import Unmeasured, end_children
from attnbench.measuring.subject import subject_of
from attnbench.records import Case, Outcome
from attnbench.records.messages import (
    AboutCase,
    Build,
    Compared,
    DescribeMachine,
    Done,
    Failure,
    Finish,
    Finished,
    Lap,
    Lapped,
    LoadedForms,
    Loads,
    MachineFacts,
    MeasureMemory,
    Outputs,
    Probe,
    ProbeTimes,
    Trace,
    Warm,
    Weighed,
)
from attnbench.records.notes import Note, left_running

EVERY_S = 0.025  # from probe to probe
SIZE = 256  # rows of the matrices, whose product takes about half a millisecond
MOST = 1 << 16  # probes kept that have not been read


class Worker(Answering):
    """Answers for one source tree, or for this package if `tree` is None."""

    built: Built  # the case that is measured

    def __init__(
        self,
        tree: str | None,
        seed: int,
        own: bool = False,
        measures_memory: bool = False,
        limit_bytes: int | None = None,
    ) -> None:
        """A worker that has built nothing yet.

        tree: the source tree, None for this package
        seed: of parameters and inputs
        own: only mechanisms of the tree itself count, not those of an installed package
        measures_memory: rather than time, of which the process keeps freed pages
        limit_bytes: most bytes of memory, None for all there is
        """
        self.cards = Cards(Path(tree) if tree else None, own)
        self.seed = seed
        self.probes = cache(Probes)
        self.state = torch_state()
        if not measures_memory:
            allocator.keep_pages()
        if limit_bytes is not None:
            allocator.limit(limit_bytes)

    def environment(self, question: DescribeMachine) -> MachineFacts:
        """This machine, versions, and measured peak rates."""
        here = environment(question.device, question.threads, question.dtypes)
        return MachineFacts(environment=here)

    def forms(self, mechanism: str) -> tuple[str, ...]:
        """Names of the forms that the tree itself computes, and torch does not compile."""
        card = self.cards.find(mechanism)
        return tuple(name for name in card.own_forms if not card.forms[name].compiles)

    def loads(self, question: Loads) -> LoadedForms | Failure:
        """The forms of a mechanism, and the files of the tree that are loaded.

        Those are told too where it cannot be loaded.
        """
        find(question.device)
        answer: LoadedForms | Failure
        try:
            answer = LoadedForms(forms=self.forms(question.mechanism))
        except (Exception, SystemExit) as error:
            answer = failure(error)
        files = sources(self.cards.tree) if self.cards.tree else ()
        return with_fields(answer, files=files)

    def build(self, question: Build | Trace) -> Warm:
        """Build a case, check one iteration, and warm up."""
        card, _, case, device = self.resolved(question)
        self.built = Built(card, case, self.seed, device, question)
        return Warm(iteration_s=self.built.cost_s, wall_s=self.built.wall_s)

    def lap(self, question: Lap) -> Lapped:
        """One sample of the case that was built."""
        taken = self.built.lap(question.iterations, question.rehearse, question.left_s)
        return Lapped(sample=taken)

    def probe(self, question: Probe) -> ProbeTimes:
        """Seconds of each probe of the core since the last call; the first call starts them."""
        return ProbeTimes(probes=tuple(self.probes(question.core).taken()))

    def finish(self, question: Finish) -> Finished:
        """Drop the case; values and notes since its build began.

        This process should measure nothing else where the mechanism has changed it.
        """
        changed = self.changes()
        device = self.built.device
        values, notes = self.built.finish(question.left_s)
        del self.built
        notes |= {Note.CHANGED: changed, **left_running(end_children())}
        gc.enable()
        gc.collect()
        device.release()
        notes = {key: note for key, note in notes.items() if note}
        return Finished(values=values, notes=notes, needs_new_process=bool(changed))

    def measure_memory(self, question: MeasureMemory) -> Weighed:
        """What `measure_memory_and_counts` finds of a case.

        This process should measure nothing else, since what it keeps of a case would count for the
        next; except where only counts matter, as where they are `checked`, and the mechanism did
        not change it.
        """
        card, config, case, device = self.resolved(question)
        values, notes = measure_memory_and_counts(
            card,
            config,
            case,
            device,
            self.seed,
            checked=question.checked,
            filled=question.filled,
        )
        gc.enable()
        gc.collect()
        device.release()
        return Weighed(
            values=values,
            notes={**notes, **left_running(end_children())},
            case=str(case),
            needs_new_process=not question.checked or bool(self.changes()),
        )

    def outputs(self, question: Outputs) -> Compared:
        """Keep in a file what a case computes, or compare it with what is kept there."""
        card, _, case, _ = self.resolved(question)
        subject = subject_of(card, case, self.seed)
        if question.keeps:
            return parity.keep(subject, question.path)
        return parity.compare(subject, card.tolerance, question.path)

    def trace(self, question: Trace) -> Done:
        """Build and warm up a case, and trace it to a file."""
        self.build(question)
        self.built.trace(question.path)
        return Done()

    def resolved(self, question: AboutCase[Any]) -> tuple[Card, Any, Case, Device]:
        """Card, config, case, and its device, on which this process now is.

        Raises `Unmeasured`.
        """
        if question.workload is UNSET or question.form is UNSET:
            raise Unmeasured(Outcome.FAILED, f"{question.mechanism} was asked for without a case")
        card, config, case = self.cards.resolve(
            question.mechanism, question.form, question.options, question.workload
        )
        device = find(case.workload.device)
        device.select()
        return card, config, case, device

    def changes(self) -> str:
        """What has changed in torch since this process began: `number of threads 2 to 7; …`."""
        return changes(self.state)


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


def changes(before: Mapping[str, Any]) -> str:
    """What differs in torch from an earlier `torch_state`: `number of threads 2 to 7; …`."""
    both = zip(before.items(), torch_state().values(), strict=True)
    return "; ".join(f"{name} {was} to {now}" for (name, was), now in both if was != now)


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
