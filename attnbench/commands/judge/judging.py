"""Judges a user's function as a mechanism: is it right, steady, and faster than the form here?"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnbench.analysis import Analysis, analyse
from attnbench.analysis.concluding import longer
from attnbench.errors import AttnbenchError, CannotRun, OverBudget, UsageError
from attnbench.mechanisms import catalogue
from attnbench.records import (
    Aspect,
    Attempt,
    Kernel,
    KernelFinding,
    Level,
    Option,
    Outcome,
    PanelRow,
    Part,
    Planned,
    Request,
    Selection,
    messages,
    storage,
    units,
)
from attnbench.running import session
from attnbench.running.plan import plan
from attnbench.running.pool import Pool
from attnbench.running.process import Process
from attnbench.running.request.options import read
from attnbench.running.request.requests import request
from attnbench.running.session import measuring_server
from attnbench.running.sweep import Progress

JUDGING = "attnbench.commands.judge.worker"  # the module of its processes
LIMIT_S = 900.0  # of all attempts, without a budget
PANEL = 0.5  # share of the budget that attempts may take; the race gets the rest
# an attempt may take this many times the longest before it, and at least
OVERTIME = 50.0
AT_LEAST_S = 10.0
# or this many times what it took to find how the function is called: it may compile for each size
COMPILING = 2.0
TOO_LONG = 10.0  # times what an attempt was expected to take, after which it hangs
HANGS = 2  # attempts without an answer, after which no more are made

LONG_S = 4.0  # that an attempt beyond the race may take
GRADIENTS = 4.0  # times what an output takes, at most
OF_FUNCTIONS = frozenset({"axes", "scales", "lower_bound", "mask_as"})  # not of the mechanism

Announce = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class KernelQuestion:
    """A user's function and the mechanism that it is to compute.

    `function`: as it was written, path/to/file.py:FUNCTION. `candidate`: the function as a form of
    the mechanism, with the options of both. `mechanism`: with its own options alone.
    """

    function: str
    candidate: Selection
    mechanism: Selection


@dataclass(frozen=True, kw_only=True)
class KernelVerdict:
    """What was found of a function.

    `error`: why it could not be judged; the other fields are empty then but `late`, whether the
    budget ended first. `dtype`, `device`: of its inputs. `kernel`: how it is called. `rows`: what
    was found of each attempt. `raced`: lengths of the race at which anything was timed.
    `changed`: settings of torch that it changed. `suspect`: what its race showed that makes times
    meaningless; `failed`: how it failed in its race. `race`: against the mechanism's form; None
    where it was not raced, for the reason `unraced`. `raced_as`: the value of `causal` in the
    race. `untrained`: lengths that were not raced in training, as gradients were not compared
    there. `more_time`: the option by which what the budget left open is decided; empty without a
    budget.
    """

    question: KernelQuestion
    error: str = ""
    late: bool = False
    dtype: str = ""
    device: str = ""
    kernel: Kernel | None = None
    rows: tuple[PanelRow, ...] = ()
    changed: str = ""
    suspect: str = ""
    failed: str = ""
    race: Analysis | None = None
    unraced: str = ""
    raced_as: bool = False
    raced: tuple[int, ...] = ()
    untrained: tuple[int, ...] = ()
    more_time: str = ""

    def passes(self, aspect: Aspect) -> bool:
        """Whether all attempts of an aspect passed that were made."""
        return all(row.passes for row in self.rows if row.attempt.aspect is aspect)

    @property
    def complete(self) -> bool:
        """Whether all was tried but what is beyond the race; of its lengths, one at least."""
        of_race = [row for row in self.rows if row.attempt.raced]
        return not any(
            row.finding is KernelFinding.UNTRIED for row in self.rows if not is_limited(row.attempt)
        ) and (not of_race or any(row.finding is not KernelFinding.UNTRIED for row in of_race))

    @property
    def faulty(self) -> bool:
        """Whether something was found that is not right, not steady, or makes it suspect."""
        passes = all(map(self.passes, Aspect))
        return bool(self.suspect or self.failed or self.changed) or not passes

    @property
    def sound(self) -> bool:
        """Whether it is right and steady in all that was to be tried."""
        return not (self.error or self.faulty) and self.complete


def is_limited(attempt: Attempt) -> bool:
    """Whether an attempt is at lengths of the race or beyond them, which time and memory limit."""
    return attempt.raced or attempt.batch == 1


def kernel_question(function: str, mechanism: str) -> KernelQuestion:
    """A function of a file as a form of the mechanism, and the mechanism. Raises `UsageError`."""
    path, _, form = function.rpartition(":")
    if not (path.endswith(".py") and form.isidentifier()):
        raise UsageError(f"{function!r} is not of the form path/to/file.py:FUNCTION")
    selections = catalogue.expand(mechanism)
    if len(selections) != 1 or selections[0].form or ".py" in selections[0].name:
        raise UsageError(f"--as {mechanism!r} is not one mechanism; attnbench models lists all")
    if not Path(path).is_file():
        raise UsageError(f"no file {path!r}")
    if marks := sorted(set("[],") & set(path)):
        raise UsageError(
            f"{path!r} has {' '.join(marks)} in its name, which name options; rename it, or give"
            " a link to it"
        )
    options = tuple(pair for pair in selections[0].options if pair[0] not in OF_FUNCTIONS)
    candidate = replace(selections[0], name=f"{selections[0].name}:{path}", form=form)
    return KernelQuestion(
        function=function, candidate=candidate, mechanism=replace(selections[0], options=options)
    )


def judge_kernels(
    questions: tuple[KernelQuestion, ...],
    options: Mapping[str, Any],
    announce: Announce = lambda text: None,
    observe: Callable[[Progress], None] = lambda progress: None,
) -> tuple[KernelVerdict, ...]:
    """The verdict on each function, and if it is right, a race against the mechanism's form.

    questions: of `kernel_question`
    options: typed options of a sweep by name; the budget is that of all functions
    announce: called with what is being tried, in words
    observe: called as a race goes on
    Raises `UsageError`, `CannotRun` if no process can be started.
    """
    core_options = {**read({"level": Level.CORE}), **options}
    core_request = request({**core_options, "models": tuple(str(q.candidate) for q in questions)})
    settings = core_request.settings
    verdicts = list[KernelVerdict]()
    with measuring_server(settings.threads, settings.seed) as server:
        server.wait()
        begun = time.monotonic()
        for number, question in enumerate(questions):
            budget_s = math.inf if core_request.budget_s is None else core_request.budget_s
            left_s = budget_s - (time.monotonic() - begun)
            judging = Judging(
                question=question,
                request=core_request,
                options=core_options,
                chosen=bool({"width", "heads"} & options.keys()),
                server=server,
                end_s=time.monotonic() + left_s / (len(questions) - number),
                announce=announce,
            )
            try:
                verdicts.append(judging.verdict(observe))
            except (AttnbenchError, OSError) as error:
                late = isinstance(error, OverBudget)
                verdicts.append(KernelVerdict(question=question, error=str(error), late=late))
    return tuple(verdicts)


@dataclass(kw_only=True)
class Judging:
    """One function being judged until `end_s` of `time.monotonic`.

    `options` are those that someone gave, `chosen` whether sizes of heads are among them.
    """

    question: KernelQuestion
    request: Request
    options: Mapping[str, Any]
    chosen: bool
    server: Pool
    end_s: float
    announce: Announce
    fit_s: float = 0.0  # what it took to find how the function is called

    def verdict(self, observe: Callable[[Progress], None]) -> KernelVerdict:
        """What is found of it. Raises `CannotRun` where it cannot be judged."""
        candidate = self.question.candidate
        core_request = self.request
        self.announce(f"trying how {candidate.form} is called")
        kernel = self.fit()
        attempts = Attempts(self, kernel)
        rows, changed = attempts.make_all()
        verdict = KernelVerdict(
            question=self.question,
            dtype=core_request.dtype,
            device=core_request.device,
            kernel=kernel,
            rows=rows,
            changed=changed,
            more_time=self.more_time(attempts.needed_s),
        )
        if not verdict.passes(Aspect.RIGHT):
            return replace(verdict, unraced="what is not right has no speed")
        if core_request.padding and kernel.uncompared_mask:
            return replace(verdict, unraced="its mask was never compared, and --padding needs one")
        lengths = self.compared_lengths(kernel, rows)
        if not lengths:
            return replace(verdict, unraced="no length of the race could be compared")
        return self.with_race(replace(verdict, raced=lengths), kernel, observe)

    def more_time(self, needed_s: float) -> str:
        """The option for a budget in which attempts that need so long, and a race, have time."""
        budget_s = self.request.budget_s
        if budget_s is None:
            return ""
        least_s = max(budget_s, needed_s / PANEL / 2)
        return longer("--budget", 30 * math.ceil(least_s / 30))

    @property
    def left_s(self) -> float:
        """Seconds left for this function."""
        return max(0.0, self.end_s - time.monotonic())

    def fit(self) -> Kernel:
        """How the function is called. Raises `CannotRun`."""
        candidate = self.question.candidate
        core_request = self.request
        limit_s = min(LIMIT_S, self.left_s)
        question = messages.Fit(
            mechanism=candidate.name,
            form=str(candidate.form),
            options=dict(candidate.options),
            dtype=core_request.dtype,
            device=core_request.device,
            width=core_request.width,
            heads=core_request.heads,
            lengths=tuple((length, self.batch(length)) for length in core_request.lengths),
            causal=self.options.get("causal"),
            chosen=self.chosen,
            padded=core_request.padding > 0,
        )
        begun = time.monotonic()
        with self.process() as process:
            answer = process.ask(question, limit_s)
        self.fit_s = time.monotonic() - begun
        if not isinstance(answer, messages.Failure):
            return answer.kernel
        if answer.is_timeout and limit_s < LIMIT_S:
            raise OverBudget(
                f"{candidate}: the budget ended before it was called once;"
                f" {self.more_time(0.0)} may be enough"
            )
        if answer.is_timeout:
            raise CannotRun(
                f"{candidate} cannot be judged: it gave no answer within {limit_s:.0f} s"
            )
        raise CannotRun(f"{candidate} cannot be judged: {answer.reason}")

    def process(self) -> Process:
        """A fresh process, which runs code of the function."""
        limit_bytes = self.request.settings.memory_limit_bytes
        return self.server.process(module=JUDGING, limit_bytes=limit_bytes)

    def batch(self, length: int) -> int:
        """The sequences of a batch in the race."""
        return self.request.batch or max(1, (self.request.tokens or length) // length)

    def compared_lengths(self, kernel: Kernel, rows: tuple[PanelRow, ...]) -> tuple[int, ...]:
        """Lengths of the race at which the output was compared in the mode that is raced.

        Also with a mask, where the race has padding.
        """
        of_race = raced_rows(rows, kernel.modes[0])
        return tuple(n for n, found in of_race.items() if all(row.tried for row in found))

    def with_race(
        self, verdict: KernelVerdict, kernel: Kernel, observe: Callable[[Progress], None]
    ) -> KernelVerdict:
        """The verdict with a race at the lengths that are to be `raced`."""
        candidate = self.question.candidate
        mechanism = self.question.mechanism
        raced = replace(candidate, options=tuple(sorted(kernel.options.items())))
        causal = kernel.modes[0]
        graded = graded_lengths(verdict.rows, causal)
        race_options = {
            **self.options,
            "models": (str(raced), str(mechanism)),
            "causal": causal,
            "lengths": verdict.raced,
            "width": (kernel.width,),
            "heads": (kernel.heads,),
        }
        if not has_backward_pass(verdict.rows):
            race_options["mode"] = ("inference",)
        if self.request.budget_s is not None:
            race_options["budget"] = self.left_s
        race_request = request(race_options)
        self.announce(f"racing {candidate.form}")
        with storage.TemporaryFolder() as folder:
            full_plan = plan(race_request, self.server)
            planned = replace(full_plan, cases=comparable_cases(full_plan.cases, graded))
            if not planned.cases:
                return replace(verdict, raced=(), unraced="its gradients were compared nowhere")
            with session.measure(
                race_request, planned, self.server, folder, observe=observe
            ) as journal:
                sweep = journal.held()
        (baseline,) = {p.case.series for p in sweep.plan if p.case.mechanism == mechanism.name}
        race = analyse(sweep, baseline)
        candidate_rows = race.cases[race.cases["mechanism"] == candidate.name]
        reasons = dict.fromkeys(reason for reason in candidate_rows["suspect"] if reason)
        timed = sorted({p.case.workload.seq_len for p in sweep.plan} & timed_lengths(sweep))
        unraced = "" if timed else f"the budget ended before it was raced; {verdict.more_time}"
        return replace(
            verdict,
            race=race if timed else None,
            unraced=unraced,
            raced_as=causal,
            raced=tuple(timed),
            suspect="; ".join(reasons),
            failed="; ".join(failures(candidate_rows)),
            untrained=tuple(
                sorted({one.case.workload.seq_len for one in {*full_plan.cases} - {*planned.cases}})
            ),
        )


def graded_lengths(rows: tuple[PanelRow, ...], causal: bool) -> frozenset[int]:
    """Lengths of the race at which gradients were compared, in the mode that is raced."""
    of_race = raced_rows(rows, causal)
    return frozenset(
        n for n, found in of_race.items() if all(row.compares_gradients for row in found)
    )


def raced_rows(rows: tuple[PanelRow, ...], causal: bool) -> dict[int, list[PanelRow]]:
    """By length of the race, what was found there in the mode that is raced."""
    of_race: dict[int, list[PanelRow]] = {}
    for row in rows:
        if row.attempt.raced and row.attempt.causal == causal:
            of_race.setdefault(row.attempt.tokens, []).append(row)
    return of_race


def comparable_cases(cases: tuple[Planned, ...], graded: frozenset[int]) -> tuple[Planned, ...]:
    """The cases of what was compared: training only at lengths whose gradients are `graded`."""
    return tuple(
        planned
        for planned in cases
        if planned.case.workload.seq_len in graded or not planned.case.workload.trains
    )


def failures(cases: Any) -> dict[str, None]:
    """How cases of a race failed that ran with the same inputs before, each reason once."""
    ended = cases[cases["outcome"].isin([Outcome.FAILED, Outcome.CRASHED])]
    rows = zip(ended["seq_len"], ended["mode"], ended["reason"], strict=True)
    return dict.fromkeys(f"{mode} at N = {int(n):,}: {reason}" for n, mode, reason in rows)


def timed_lengths(sweep: Any) -> set[int]:
    """Lengths at which anything was timed."""
    lengths = {planned.case.key: planned.case.workload.seq_len for planned in sweep.plan}
    timed = (run for run in sweep.runs if run.part is Part.TIME and run.outcome is Outcome.OK)
    return {lengths[run.case] for run in timed if run.samples}


def has_backward_pass(rows: tuple[PanelRow, ...]) -> bool:
    """Whether a function has a backward pass, by the errors that were found."""
    return any(row.compares_gradients for row in rows)


@dataclass
class Attempts:
    """The attempts of one function, one after the other, within their share of its budget."""

    judging: Judging
    kernel: Kernel

    def __post_init__(self) -> None:
        left_s = self.judging.left_s
        self.end_s = time.monotonic() + (LIMIT_S if math.isinf(left_s) else PANEL * left_s)
        self.rows = list[PanelRow]()
        self.longest_s = 0.0
        self.raced_s = 0.0  # of the last attempt at a length of the race
        self.raced_work = 0
        self.hangs = 0
        self.changed = ""
        self.expected_s = 0.0  # of the attempt that is being made, where known
        self.begun = time.monotonic()
        self.needed_s = 0.0  # by what was not made in time too

    @property
    def left_s(self) -> float:
        """Seconds left for attempts."""
        return max(0.0, self.end_s - time.monotonic())

    @property
    def patience_s(self) -> float:
        """Seconds that any attempt may take, before it is said to give no answer."""
        return max(AT_LEAST_S, COMPILING * self.judging.fit_s)

    def make_all(self) -> tuple[tuple[PanelRow, ...], str]:
        """What is found of each, and what the function changed in torch."""
        todo = list(self.kernel.attempts)
        while todo:
            with self.judging.process() as process:
                while todo and self.attempt(process, todo.pop(0)):
                    pass
        self.needed_s += time.monotonic() - self.begun
        return with_lost_gradients(tuple(self.rows)), self.changed

    def attempt(self, process: Process, attempt: Attempt) -> bool:
        """Make one attempt; returns whether the process can make another."""
        attempt, reason = self.within_budget(attempt)
        if reason:
            self.rows.append(PanelRow.without(attempt, KernelFinding.UNTRIED, reason))
            if attempt.raced or not is_limited(attempt):
                self.needed_s += max(self.expected_s, self.longest_s)
            return True
        self.judging.announce(f"trying {self.kernel.form} {attempt.inputs}, N = {attempt.tokens:,}")
        limit_s = min(self.left_s, max(self.patience_s, OVERTIME * self.longest_s))
        answer = self.ask(process, attempt, limit_s)
        if isinstance(answer, messages.Failure):
            self.learn(self.row_without_answer(attempt, answer, limit_s))
            return False
        row = answer.row
        if row is None:
            return True
        self.changed = answer.changed or self.changed
        if row.finding is KernelFinding.UNTRIED and attempt.gradients:  # memory ran out
            return self.attempt(process, replace(attempt, gradients=False))
        self.learn(row)
        return True

    def ask(
        self, process: Process, attempt: Attempt, limit_s: float
    ) -> messages.Attempted | messages.Failure:
        """The answer of a process about an attempt."""
        candidate = self.judging.question.candidate
        core_request = self.judging.request
        options: dict[str, Option] = {**dict(candidate.options), **self.kernel.options}
        question = messages.MakeAttempt(
            mechanism=candidate.name,
            form=str(candidate.form),
            options=options,
            device=core_request.device,
            attempt=attempt,
            left_s=limit_s / 4,
        )
        return process.ask(question, limit_s)

    def learn(self, row: PanelRow) -> None:
        """Keep a row, and what it took."""
        self.rows.append(row)
        if row.tried:
            self.longest_s = max(self.longest_s, row.took_s)
        if is_limited(row.attempt) or row.attempt.is_usual:
            self.raced_s = row.took_s
            self.raced_work = work(row.attempt)

    def within_budget(self, attempt: Attempt) -> tuple[Attempt, str]:
        """The attempt, perhaps without gradients, and why it is not made, or nothing."""
        self.expected_s = 0.0
        if self.hangs >= HANGS:
            return attempt, "it hung before"
        left_s = self.left_s
        predictable = is_limited(attempt) and self.raced_work
        if predictable:
            self.expected_s = self.raced_s * work(attempt) / self.raced_work
        if left_s <= 0:
            return attempt, "the budget ended"
        if not predictable:
            return attempt, ""
        share_s = left_s / 2
        if attempt.gradients and self.expected_s * GRADIENTS > share_s:
            attempt = replace(attempt, gradients=False)
        most_s = left_s if attempt.raced else min(LONG_S, share_s)
        if not attempt.gradients:
            self.expected_s /= 2
        if self.expected_s > most_s:
            return attempt, f"it would take about {self.expected_s:.0f} s"
        return attempt, ""

    def row_without_answer(
        self, attempt: Attempt, failure: messages.Failure, limit_s: float
    ) -> PanelRow:
        """The row of an attempt whose process gave no answer, or ended."""
        if failure.is_timeout:
            self.hangs += 1
            if limit_s < max(self.patience_s, TOO_LONG * self.expected_s):
                self.needed_s += (
                    self.patience_s if attempt.raced or not is_limited(attempt) else 0.0
                )
                reason = f"no answer after {limit_s:.0f} s"
                return PanelRow.without(attempt, KernelFinding.UNTRIED, reason)
            reason = f"after {limit_s:.0f} s; killed"
            return PanelRow.without(attempt, KernelFinding.NO_ANSWER, reason)
        if failure.is_out_of_memory:
            return PanelRow.without(attempt, KernelFinding.UNTRIED, failure.reason)
        return PanelRow.without(attempt, KernelFinding.FAILED, failure.reason)


def with_lost_gradients(rows: tuple[PanelRow, ...]) -> tuple[PanelRow, ...]:
    """The rows, where those without gradients are wrong that were to have some, as others have.

    A function may leave the graph at some sizes without a word: what is trained with it then learns
    nothing from there.
    """
    graded = [row.attempt for row in rows if row.compares_gradients]
    if not graded:
        return rows
    first = graded[0]
    mode = ", causal" if first.causal else ""
    reason = (
        f"no gradients, which it gives {first.inputs}{mode}, at N = {units.count(first.tokens)}"
    )
    return tuple(
        replace(row, finding=KernelFinding.WRONG, reason=reason) if loses_gradients(row) else row
        for row in rows
    )


def loses_gradients(row: PanelRow) -> bool:
    """Whether an output passed whose gradients were to be compared, and were not there."""
    compared = row.passes and bool(row.errors)
    return compared and row.attempt.gradients and not row.compares_gradients


def work(attempt: Attempt) -> int:
    """Steps of a kernel that compares all pairs of tokens, of an attempt."""
    return attempt.batch * attempt.tokens**2 * attempt.width
