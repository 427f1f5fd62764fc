"""One measuring process: it builds cases, times them lap by lap, and measures their memory.

Whatever a mechanism raises becomes a failure with its reason.
"""

import gc
import threading
import time
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any

import torch
from msgspec import UNSET
from msgspec.structs import replace as with_fields

from attnbench.attention import Card
from attnbench.devices import SYSTEM, find
from attnbench.devices.protocol import Device
from attnbench.measuring import allocator, parity
from attnbench.measuring.answering import Answering, failure
from attnbench.measuring.built import BuiltCase
from attnbench.measuring.cards import Cards, source_files
from attnbench.measuring.environment import environment
from attnbench.measuring.memory_and_counts import measure_memory_and_counts
from attnbench.measuring.server import Unmeasured, end_children
from attnbench.measuring.subject import subject_of
from attnbench.measuring.torch_state import TorchState
from attnbench.records import Case, Outcome, messages
from attnbench.records.notes import Note, left_running

EVERY_S = 0.025  # from probe to probe
SIZE = 256  # rows of the matrices, whose product takes about half a millisecond
MOST = 1 << 16  # probes kept that have not been read


class Worker(Answering):
    """Answers for one source tree, or for this package if `tree` is None."""

    built: BuiltCase  # the case that is measured

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
        self.state = TorchState()
        if not measures_memory:
            allocator.keep_pages()
        if limit_bytes is not None:
            allocator.limit(limit_bytes)

    def environment(self, question: messages.DescribeMachine) -> messages.MachineFacts:
        """This machine, versions, and measured peak rates."""
        machine = environment(question.device, question.threads, question.dtypes)
        return messages.MachineFacts(environment=machine)

    def forms(self, mechanism: str) -> tuple[str, ...]:
        """Names of the forms that the tree itself computes, and torch does not compile."""
        card = self.cards.find(mechanism)
        return tuple(name for name in card.own_forms if not card.forms[name].compiles)

    def loads(self, question: messages.Loads) -> messages.LoadedForms | messages.Failure:
        """The forms of a mechanism, and the files of the tree that are loaded.

        Those are told too where it cannot be loaded.
        """
        find(question.device)
        answer: messages.LoadedForms | messages.Failure
        try:
            answer = messages.LoadedForms(forms=self.forms(question.mechanism))
        except (Exception, SystemExit) as error:
            answer = failure(error)
        files = source_files(self.cards.tree) if self.cards.tree else ()
        return with_fields(answer, files=files)

    def build(self, question: messages.Build | messages.Trace) -> messages.Warm:
        """Build a case, check one iteration, and warm up."""
        card, _, case, device = self.resolve(question)
        self.built = BuiltCase(card, case, self.seed, device, question)
        return messages.Warm(iteration_s=self.built.cost_s, wall_s=self.built.wall_s)

    def lap(self, question: messages.Lap) -> messages.Lapped:
        """One sample of the case that was built."""
        lap = self.built.lap(question.iterations, question.rehearse, question.left_s)
        return messages.Lapped(sample=lap)

    def probe(self, question: messages.Probe) -> messages.ProbeTimes:
        """Seconds of each probe of the core since the last call; the first call starts them."""
        return messages.ProbeTimes(probes=tuple(self.probes(question.core).new_times()))

    def finish(self, question: messages.Finish) -> messages.Finished:
        """Drop the case; values and notes since its build began.

        This process should measure nothing else where the mechanism has changed it.
        """
        changed = self.state.changes()
        device = self.built.device
        values, notes = self.built.finish(question.left_s)
        del self.built
        notes |= {Note.CHANGED: changed, **left_running(end_children())}
        gc.enable()
        gc.collect()
        device.release()
        notes = {key: note for key, note in notes.items() if note}
        return messages.Finished(values=values, notes=notes, needs_new_process=bool(changed))

    def measure_memory(self, question: messages.MeasureMemory) -> messages.Weighed:
        """What `measure_memory_and_counts` finds of a case.

        This process should measure nothing else, since what it keeps of a case would count for the
        next; except where only counts matter, as where they are `checked`, and the mechanism did
        not change it.
        """
        card, config, case, device = self.resolve(question)
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
        return messages.Weighed(
            values=values,
            notes={**notes, **left_running(end_children())},
            case=str(case),
            needs_new_process=not question.checked or bool(self.state.changes()),
        )

    def outputs(self, question: messages.Outputs) -> messages.Compared:
        """Keep in a file what a case computes, or compare it with what is kept there."""
        card, _, case, _ = self.resolve(question)
        subject = subject_of(card, case, self.seed)
        if question.keeps:
            return parity.keep(subject, question.path)
        return parity.compare(subject, card.tolerance, question.path)

    def trace(self, question: messages.Trace) -> messages.Done:
        """Build and warm up a case, and trace it to a file."""
        self.build(question)
        self.built.trace(question.path)
        return messages.Done()

    def resolve(self, question: messages.AboutCase[Any]) -> tuple[Card, Any, Case, Device]:
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


class Probes:
    """CPU seconds of a fixed piece of work, repeated to tell the speed of a core.

    A thread takes them until the process ends.
    """

    def __init__(self, core: int) -> None:
        SYSTEM.bind(0, {core})
        self.times_s: deque[float] = deque(maxlen=MOST)
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
            self.times_s.append(time.thread_time() - begun)

    def new_times(self) -> list[float]:
        """Those since this was last called."""
        return [self.times_s.popleft() for _ in range(len(self.times_s))]
