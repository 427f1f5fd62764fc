"""One measuring process: it builds cases, times them lap by lap, and measures their memory.

The measured tree's package may be an older one: of it this room uses only the registry, the
contract and the model. Questions and answers are plain data; whatever a mechanism raises becomes an
outcome with its reason.
"""

import gc
import itertools
import math
import os
import time
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch

from attnbench.attention.card import Card
from attnbench.devices.finding import find
from attnbench.devices.host import load
from attnbench.devices.timing import increments, is_away, sample, spent_s, warm_up
from attnbench.measure import allocator, compiling, samples
from attnbench.measure.building import subject_of
from attnbench.measure.cards import Cards, Unmeasured, Unusable
from attnbench.measure.energy import energy as energy_of
from attnbench.measure.environment import environment
from attnbench.measure.inputs import Iterations, some_numbers
from attnbench.measure.memory_and_counts import measure_memory_and_counts
from attnbench.measure.oddities import Examination, is_not_causal
from attnbench.measure.probes import Probes
from attnbench.measure.process import OFF, autocast, changes, is_out_of_memory, torch_state
from attnbench.measure.server import described, end_children
from attnbench.measure.sources import sources
from attnbench.measure.tracing import trace
from attnbench.records import REMAPPED, Case, Clock, Sample
from attnbench.run.workers import Answer, left_running

UNHELD_S = 0.002  # of samples that show launches: long compared with one wait for the device
EXAMINED = 6  # iterations that the search for odd behaviour may take
UNEXAMINED = "was not examined for odd behaviour, as the budget ended"
# to collect 400 after each iteration of 6 ms took 2.5 % of the time
LITTER = 100  # objects that an iteration leaves in cycles
GARBAGE = "leaves garbage in cycles; the collector is off while laps run, and not in their time"
LEFT_BYTES = 1 << 20  # graphs leave less: the states of random generators


class Worker:
    """Answers for one source tree, or for this package if `tree` is None.

    `own`: only mechanisms of the tree itself count, not those of an installed package.
    `measures_memory`: in this process freed pages go back to the system; one that measures time
    keeps them. Either is replaced once it keeps more than `keep_bytes` after a case.
    """

    def __init__(
        self,
        tree: str | None,
        seed: int,
        own: bool = False,
        measures_memory: bool = False,
        keep_bytes: float = math.inf,
        limit_bytes: int | None = None,
    ) -> None:
        self.cards, self.seed = Cards(Path(tree) if tree else None, own), seed
        self.device, self.probes = cache(find), cache(Probes)
        self.built: Any = None
        self.keep_bytes, self.most_bytes = keep_bytes, math.inf
        allocator.return_pages() if measures_memory else allocator.keep_pages()
        if limit_bytes is not None:
            allocator.limit(limit_bytes)

    def answer(self, do: str, **asked: Any) -> Answer:
        """The result of the method `do`; an exception in a mechanism becomes an outcome."""
        try:
            return {"outcome": "ok", **getattr(self, do)(**asked)}
        except Unmeasured as error:
            return {"outcome": error.outcome, "reason": str(error)}
        except Unusable as error:
            return {"outcome": "unsupported", "reason": str(error)}
        except (Exception, SystemExit) as error:
            outcome = "oom" if is_out_of_memory(error) else "failed"
            return {"outcome": outcome, "reason": described(error)}

    def environment(self, device: str, threads: int, dtypes: list[str]) -> Answer:
        """This machine, versions, and measured peak rates."""
        return {"environment": asdict(environment(device, threads, dtypes))}

    def forms(self, mechanism: str) -> Answer:
        """Names of the forms that the tree itself computes, and of those that torch compiles."""
        forms = self.cards.find(mechanism).forms
        own = tuple(name for name, form in forms.items() if not getattr(form, "package", ""))
        compiled = [name for name, form in forms.items() if getattr(form, "compiles", False)]
        return {"forms": own, "compiled": compiled}

    def loads(self, mechanism: str, device: str) -> Answer:
        """Its forms, or why it cannot be loaded, and the files of the tree that are loaded."""
        self.device(device)
        forms = self.answer("forms", mechanism=mechanism)
        return {**forms, "files": sources(self.cards.tree) if self.cards.tree else ()}

    def build(
        self,
        warmup_s: float = 0.0,
        cold: bool = False,
        cuda_graphs: bool = False,
        suspicious: bool = False,
        return_large_blocks: bool = False,
        clock: str = Clock.CPU,
        faulting_s: float = 0.0,
        core: int | None = None,
        inputs_seed: int = 0,
        filled: bool = False,
        energy: bool = False,
        **asked: Any,
    ) -> Answer:
        """Build a case, check one iteration, and warm up.

        Inputs of all iterations but the first come from `inputs_seed`, which should be fresh.
        If `suspicious`, `finish` looks for odd behaviour of the mechanism. With
        `return_large_blocks`, large freed tensors go back to the system. With `cuda_graphs`, the
        iteration is captured once checked. `clock` is for where there is no device time; from now
        on the process is bound to the `core`, if given.
        A step's state is `filled` with random numbers, or left by a prompt. With `energy`, `finish`
        measures that of an iteration. The answer has `iteration_s`, the time that one costs in
        full, and `wall_s`, its wall time.
        """
        allocator.keep_pages(large=not return_large_blocks)
        begun, before, state = time.perf_counter(), load(), torch_state()
        card, _, case = self.resolved(**asked)
        if is_not_causal(card, case, self.seed):
            raise Unmeasured("unsupported", "later tokens change its earlier outputs")
        subject = subject_of(card, case, self.seed, filled=filled)
        device = self.device(case.workload.device)
        if subject.compiles:
            compiling.load(device)
        meter = device.meter()
        if core is not None:
            os.sched_setaffinity(0, {core})
        start_watch = partial(device.stopwatch, cold, Clock(clock))
        watch = start_watch()
        iterate, clear, steps = subject.iteration(), subject.clear, subject.mode.steps
        setup_s = time.perf_counter() - begun
        ttft_s = (
            samples.time_to_first_token(subject, start_watch(), device.meter()) if steps else None
        )
        compiling_s = compiling.first_s(iterate, clear, device) if subject.compiles else None
        kept: list[torch.Tensor] = []
        faulted, waited = increments(meter.faults), increments(meter.waited)
        examination = Examination(subject, self.seed) if suspicious else None
        first = sample(lambda lap: kept.append(iterate(lap)), clear, watch, 1)
        if examination:
            examination.first = some_numbers(kept[0])
        if wrong := subject.check(kept.pop()):
            on = autocast()
            raise Unmeasured("failed", wrong + f"; autocast is on: {on}" * (on != OFF))
        if cuda_graphs:
            iterate, clear = samples.captured(device, subject), lambda: None
            watch = start_watch()
            first = sample(iterate, clear, watch, 1)
        iterations = Iterations(
            subject, iterate, clear, inputs_seed, fixed=cuda_graphs, examined=suspicious
        )
        clear = iterations.clear
        ahead = allocator.map_ahead
        warm = warm_up(iterations, clear, watch, first, warmup_s, faulted, faulting_s, ahead)
        late = warm[len(warm) // 2 :]
        wall_s = median(spent_s([each]) for each in late)
        iteration_s = cost_s = median(each.seconds for each in late)
        if watch.hides_launches:  # hiding the launches of one takes longer than they do
            cost_s = wall_s = sample(iterations, clear, watch, 1).wall_s
        elif is_away(warm, waited()):
            iteration_s = cost_s = wall_s
        values = {"setup_s": setup_s, "warmup_s": spent_s(warm), "warmup_iterations": len(warm)}
        values |= samples.without_none(
            ttft_s=ttft_s, state_bytes=subject.state_bytes(), load_before=before
        )
        if compiling_s is not None:
            values["compile_s"] = max(0.0, compiling_s - first.wall_s)
        self.built = SimpleNamespace(
            subject=subject,
            iterate=iterations,
            clear=clear,
            prepare=iterations.prepare,
            watch=watch,
            device=device,
            meter=meter,
            state=state,
            values=values,
            iteration_s=iteration_s,
            examination=examination,
            return_large_blocks=return_large_blocks,
            energy=energy,
            cuda_graphs=cuda_graphs,
            laps=[],
            graphs=compiling.graphs(),
            moved=iterations.moved,
        )
        # a collection would disturb the samples of one process alone
        gc.collect()
        gc.disable()
        return {"form": case.form, "iteration_s": cost_s, "wall_s": wall_s}

    def lap(self, iterations: int, rehearse: bool = False, left_s: float = math.inf) -> Answer:
        """One sample of the case that was built; with `rehearse`, first one iteration untimed.

        A sample that hides launches follows a short one that shows them, for its wall time. A
        disturbed one is retaken as often as its meter and the `left_s` of the budget allow, and
        then kept.
        """
        built, begun = self.built, time.perf_counter()

        def timed(count: int, hide: bool = True) -> Sample:
            return sample(built.iterate, built.clear, built.watch, count, hide)

        def taken_once() -> Sample:
            built.prepare(iterations)
            return samples.take_metered(built.meter, partial(timed, iterations))

        if rehearse:
            samples.run_rehearsal(partial(timed, 1), built.meter.faults)
        unheld_s = None
        if built.watch.hides_launches:
            count = min(iterations, math.ceil(UNHELD_S / built.iteration_s))
            unheld_s = timed(count, hide=False).wall_s / count
        taken = taken_once()
        for take in itertools.count(1):
            if not built.meter.should_retake(take, left_s - (time.perf_counter() - begun)):
                break
            if rehearse:  # the meter has used the caches too
                samples.run_rehearsal(partial(timed, 1), built.meter.faults)
            taken = taken_once()
        if taken.seconds <= 0:
            raise Unmeasured("failed", "by the device's clock a sample took no time")
        if built.examination:
            built.examination.last = some_numbers(built.iterate.output)
        built.laps.append(taken)
        return {"sample": taken._replace(unheld_s=unheld_s)}

    def probed(self, core: int) -> Answer:
        """Seconds of each probe of the core since the last call; the first call starts them."""
        return {"probes": self.probes(core).taken()}

    def finish(self, left_s: float = math.inf) -> Answer:
        """Drop the case; return values and notes since its build began.

        Odd behaviour is looked for if the `left_s` of the budget allow. `needs_new_process` says
        that this one should measure nothing else: the mechanism has changed it, or it keeps more
        freed memory than it may, in pieces that hold no large tensor.
        """
        built, self.built = self.built, None
        garbage = gc.collect() // max(1, built.iterate.moved - built.moved)
        examination = built.examination if EXAMINED * built.iteration_s < left_s else None
        values = {**built.values, "garbage": garbage}
        values |= built.meter.values() | samples.without_none(load_after=load())
        recompiles = compiling.graphs() - built.graphs
        if built.subject.compiles or recompiles:
            values["recompiles"] = recompiles
        again = f"was compiled again while it was timed (new graphs: {recompiles})"
        changed, on = changes(built.state), built.state["autocast"]
        notes = {
            "changed": changed,
            **(examination.notes(built.iterate) if examination else {}),
            "unexamined": UNEXAMINED * (examination is not built.examination),
            **left_running(end_children()),
            **built.device.notes(built.watch),
            **built.meter.notes(),
            "recompiled": again * bool(recompiles),
            "autocast": on * (on != OFF),
            "garbage": GARBAGE * (garbage > LITTER),
        }
        if built.return_large_blocks:
            notes["allocator"] = REMAPPED
        device, (more, said) = built.device, energy_of(built, left_s) if built.energy else ({}, {})
        values, notes = values | more, notes | said
        del built
        gc.enable()
        gc.collect()
        if not (needs_new_process := bool(changed)):
            device.release()
            needs_new_process = self.keeps_too_much()
        notes = {key: note for key, note in notes.items() if note}
        return {"values": values, "notes": notes, "needs_new_process": needs_new_process}

    def measure_memory(
        self, checked: bool = False, filled: bool = False, error: bool = False, **asked: Any
    ) -> Answer:
        """What `measure_memory_and_counts` finds of a case.

        `needs_new_process` says that this one should not measure the memory of another case: the
        device does not allow that, unless only counts matter, as where they are `checked`; the
        mechanism changed it or left tensors a later case might use; or it keeps too much memory.
        """
        state = torch_state()
        card, config, case = self.resolved(**asked)
        device = self.device(case.workload.device)
        before = device.left_bytes()
        wanted = {"checked": checked, "filled": filled, "error": error}
        values, notes = measure_memory_and_counts(card, config, case, device, self.seed, **wanted)
        gc.collect()
        device.release()
        left = device.left_bytes() - before > LEFT_BYTES
        afresh = device.memory_needs_fresh_process and not checked
        needs_new_process = afresh or left or bool(changes(state)) or self.keeps_too_much()
        notes |= left_running(end_children())
        about = {"form": case.form, "case": str(case), "needs_new_process": needs_new_process}
        return {"values": values, "notes": notes, **about}

    def keeps_too_much(self) -> bool:
        """Whether the process keeps more memory than it may."""
        return allocator.private_bytes() > self.most_bytes

    def trace(self, path: str, **asked: Any) -> Answer:
        """Build and warm up a case, and trace it to `path`."""
        self.build(**asked)
        trace(self.built.iterate, self.built.clear, self.built.iteration_s, path)
        return {}

    def resolved(self, **asked: Any) -> tuple[Card, Any, Case]:
        """Card, config and case, on whose device this process now is. Raises `Unmeasured`."""
        card, config, case = self.cards.resolve(**asked)
        device = self.device(case.workload.device)
        device.select()
        if self.most_bytes == math.inf:  # before the first case
            device.wake()
            self.most_bytes = self.keep_bytes + allocator.private_bytes()
        return card, config, case
