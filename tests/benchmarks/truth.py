"""How often the conclusions of a report are true, in worlds of which all is known.

    python -m tests.benchmarks.truth > reports/truth.md

A world has one to eight series with true times, peaks and endings (exponents from 1 to 2, kinks
where a form changes, equal series, some that run out of memory, fail at one length, are suspect or
declare no costs), and a budget of 20 seconds to 20 minutes. The real order of visits, loop, journal
and analysis measure it on a machine that runs nothing, where laps vary by 2 % and layouts of memory
favour one series over another by 3.5 % in each round (standard deviations). Then every conclusion
is compared with the world.

A *logical* part of a conclusion does not depend on noise, and may never be false: that it speaks
only of what was measured where it says so, names a winner among all that were measured, names what
was left out, ranks no suspect, and compares with a series that was timed. An answer *with an
interval* may be false in 5 % of cases: that a series is the fastest, faster from or up to a length,
at all lengths or at none, and the exponent of a cost. *Always* and *never* are held against all
lengths of the sweep, also those between measured ones.

So are the lines that a sweep prints while it runs ("decided so far"): the interval of each, which
may not hold the true ratio in 5 % of them.

So are the conclusions of the verbs that read sweeps: what `recommend` ranks at the middle length
and what fits into 64 MiB; claims on two series by `claims`; what `compare` says of a second sweep
of the same world, in which the first series takes as long, 1.6 times or half as long; and whether
the first takes longer than the last by `explain`. Their sentences and cells may not say *all*,
*never*, *always*, *only*, *none* or *every*.

The share of false answers is of those that were given, not of all that were asked. It is highest
for an answer that seldom applies: in the second sweep of a world one series is slower in a third of
the worlds, and faster in a third, so that chance has many others to call changed.
"""

import argparse
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from attnbench.analysis.conclusions import Answer, Conclusion, Question
from attnbench.analysis.costs import MARGIN
from attnbench.analysis.report import analyse
from attnbench.analysis.visits import BlockResults
from attnbench.records import Mode, Outcome, Part
from attnbench.records.metrics import MEMORY, TIME
from tests.benchmarks.header import begin
from tests.benchmarks.truth_of_verbs import said
from tests.running.worlds import MEMORY_BYTES, TOKENS, drawn, measured

BUDGETS = (60.0, 300.0, 1200.0)  # upper ends of the columns of the page, in seconds
WINNERS = (Question.FASTEST, Question.LEAST_MEMORY)
# of *faster from*: whether the series is faster at all lengths of the scope, or of the sweep
EVERYWHERE = {
    Answer.ALL: True,
    Answer.NEVER: False,
    Answer.FASTER_AT: True,
    Answer.SLOWER_AT: False,
}


@dataclass(frozen=True)
class Verdict:
    """What became of one conclusion: logical parts that are false, and whether its answer is true.

    `true` is None for an answer that leaves the question open.
    """

    question: str
    answer: Answer
    wrong: tuple[str, ...]
    true: bool | None


class Lines:
    """Compares what a sweep prints as decided with its world; `visited` is told of each block."""

    def __init__(self, world):
        self.world = world
        self.results = BlockResults({}, TOKENS)
        self.verdicts = []

    def visited(self, block, _, runs):
        """What a visit to a block decides."""
        for each in self.results.decided(block, runs):
            fast_s, slow_s = (
                self.world.nature(name).seconds(block.mode, block.seq_len)
                for name in (each.fast, each.slow)
            )
            true = each.low <= slow_s / fast_s <= each.high
            self.verdicts.append(Verdict("decided so far", Answer.WINNER, (), true))


class Judge:
    """Compares the conclusions of one sweep with its world."""

    def __init__(self, world, sweep):
        self.world = world
        self.sweep = sweep
        self.analysis = analyse(sweep, world.against)
        cases = [planned.case for planned in sweep.plan]
        self.places = {
            case.key: (case.workload.mode, f"{case.mechanism}:{case.form}", case.workload.seq_len)
            for case in cases
        }
        self.times = self.known(Part.TIME)
        self.peaks = self.known(Part.MEMORY)

    def known(self, part):
        """The mode, series and length of all cases of which this was measured."""
        runs = [run for run in self.sweep.runs if run.part is part]
        ended = {run.case for run in runs if run.outcome not in (Outcome.OK, Outcome.SKIPPED)}
        measured = {run.case for run in runs if run.outcome is Outcome.OK}
        return {self.places[key] for key in measured - ended}

    def verdicts(self) -> Iterator[Verdict]:
        """The verdict on each conclusion, and on the baselines of the report."""
        for conclusion in self.analysis.conclusions:
            wrong = tuple(self.wrong(conclusion))
            yield Verdict(conclusion.question, conclusion.answer, wrong, self.true(conclusion))

    def of_verbs(self) -> Iterator[Verdict]:
        """The verdict on each conclusion of the verbs that read stored sweeps."""
        for one in said(self):
            question = one.conclusion.question
            if question is Question.FASTEST:
                question = f"{question}, recommended"
            yield Verdict(question, one.conclusion.answer, one.wrong, one.true)

    def suspects(self):
        """The series that were found suspect by the time that the sweep ended."""
        notes = ((run.case, run.notes) for run in self.sweep.runs)
        return {self.places[key][1] for key, own in notes if own.get("suspect")}

    def wrong(self, conclusion: Conclusion) -> Iterator[str]:
        """What a conclusion says that was not measured."""
        known = self.peaks if conclusion.quantity == MEMORY else self.times
        mode = Mode(conclusion.mode)
        lengths = conclusion.scope.lengths
        named = (*conclusion.series, *conclusion.against)
        # an exponent of declared work needs no measurement
        counted = conclusion.question is Question.EXPONENT and conclusion.quantity not in (
            TIME,
            MEMORY,
        )
        if not counted:
            for series in named:
                if any((mode, series, n) not in known for n in lengths):
                    yield "speaks of what was not measured"
        if {*named} & self.suspects() and conclusion.question in (*WINNERS, Question.FASTER_FROM):
            yield "ranks a suspect"
        if conclusion.answer in (Answer.ALL, Answer.NEVER):
            yield from self.overreaching(conclusion)
        if conclusion.question in WINNERS and lengths:
            yield from self.among_survivors(conclusion, known)
        if conclusion.question is Question.LIMIT:
            yield from self.no_limit(conclusion)

    def overreaching(self, conclusion):
        """Whether *always* or *never* rests on too few lengths, or not on all of the sweep."""
        lengths, mode = conclusion.scope.lengths, Mode(conclusion.mode)
        both = (*conclusion.series, *conclusion.against)
        common = {n for n in self.world.lengths if all((mode, s, n) in self.times for s in both)}
        if len(common) < 3 or not {*lengths} == common == {*self.world.lengths}:
            yield "says of all lengths what few showed"

    def among_survivors(self, conclusion, known):
        """Whether a winner was named without all that was measured, or in silence on the others."""
        (seq_len,) = conclusion.scope.lengths
        mode = Mode(conclusion.mode)
        honest = {f"{n.name}:eager" for n in self.world.natures} - self.suspects()
        compared = {*conclusion.series, *conclusion.against}
        there = {series for series in honest if (mode, series, seq_len) in known}
        if compared != there:
            yield "does not compare what was measured"
        if conclusion.best and len(there) < 2:
            yield "writes a single series in bold"
        silent = honest - there - {each.series for each in conclusion.left_out}
        could = [series for series in silent if self.could_run(series, mode, seq_len)]
        if could and conclusion.answer is Answer.WINNER:
            yield "names a winner in silence on what was left out"

    def could_run(self, series, mode, seq_len):
        """Whether a case that was not measured does run on this machine."""
        nature = self.world.nature(series)
        fits = MARGIN * nature.peak_bytes(mode, seq_len) <= MEMORY_BYTES
        return fits and nature.fate(seq_len) is Outcome.OK

    def no_limit(self, conclusion):
        """Whether a series went on beyond its limit."""
        (series,) = conclusion.series
        mode = Mode(conclusion.mode)
        beyond = [n for n in self.world.lengths if n >= conclusion.value.point]
        if any((mode, series, n) in self.times for n in beyond):
            yield "a limit that was passed"

    def true(self, conclusion: Conclusion) -> bool | None:
        """Whether the answer of a conclusion is true; None where it leaves the question open."""
        if conclusion.answer in (Answer.NOT_KNOWN, Answer.ALONE, Answer.BENDS):
            return None
        match conclusion.question:
            case Question.FASTEST | Question.LEAST_MEMORY:
                return self.cheapest(conclusion)
            case Question.FASTER_FROM:
                return self.faster(conclusion)
            case Question.EXPONENT:
                return self.grows(conclusion)
        return None

    def cost(self, quantity, mode, series, seq_len):
        """The true cost of an iteration."""
        nature = self.world.nature(series)
        if quantity == MEMORY:
            return nature.peak_bytes(mode, seq_len)
        return nature.seconds(mode, seq_len)

    def cheapest(self, conclusion):
        """Whether the first, or one of those that tie with it, costs least of what was compared."""
        (seq_len,) = conclusion.scope.lengths
        mode = Mode(conclusion.mode)
        names = (*conclusion.series, *conclusion.against)
        costs = {s: self.cost(conclusion.quantity, mode, s, seq_len) for s in names}
        least = min(costs.values())
        return any(costs[s] <= least * (1 + 1e-9) for s in conclusion.series)

    def faster(self, conclusion):
        """Whether the series is faster, and slower, where it is said to be."""
        mode = Mode(conclusion.mode)
        (series,), (other,) = conclusion.series, conclusion.against

        def log_ratio(n):
            own_s = self.cost(TIME, mode, series, n)
            return math.log(own_s / self.cost(TIME, mode, other, n))

        answer, value, scope = conclusion.answer, conclusion.value, conclusion.scope
        if answer in EVERYWHERE:
            lengths = scope.of_sweep if answer in (Answer.ALL, Answer.NEVER) else scope.lengths
            sign = -1 if EVERYWHERE[answer] else 1
            return all(sign * log_ratio(n) > 0 for n in lengths)
        after = [log_ratio(n) for n in scope.lengths if n >= value.high]
        before = [log_ratio(n) for n in scope.lengths if n <= value.low]
        if answer is Answer.FROM:
            return all(log < 0 for log in after) and (not before or before[-1] > 0)
        if answer is Answer.UP_TO:
            return all(log < 0 for log in before) and all(log > 0 for log in after)
        return all(log > 0 for log in after)

    def grows(self, conclusion):
        """Whether the interval of an exponent holds that of the true costs at its lengths."""
        mode = Mode(conclusion.mode)
        (series,) = conclusion.series
        lengths = np.array(conclusion.scope.lengths, float)
        costs = [
            self.cost(conclusion.quantity, mode, series, int(n)) / max(1, TOKENS // int(n))
            for n in lengths
        ]
        slope = float(np.polyfit(np.log(lengths), np.log(costs), 1)[0])
        return conclusion.value.low - 1e-6 <= slope <= conclusion.value.high + 1e-6


def baselines_wrong(judge) -> Iterator[str]:
    """Whether a table compares with a series that was not timed at the front of its mode."""
    for front in judge.analysis.answers.fronts:
        for series in judge.analysis.baselines_by_mode[front.mode]:
            if (Mode(front.mode), series, front.seq_len) not in judge.times:
                yield f"compares with {series}, which was not timed"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0, help="Seed of the first world.")
    asked = parser.parse_args()
    begin(
        "Conclusions and the truth", __doc__, "python -m tests.benchmarks.truth", "numpy", "scipy"
    )
    tell(asked.worlds, *tally(range(asked.first, asked.first + asked.worlds)))


def tell(worlds, held, wrong, by_budget):
    """Print the tables of the page from the numbers of `tally`."""
    print(f"{worlds:,} worlds, {sum(held.values()):,} conclusions.\n")
    print(f"Logical parts that are false: {sum(wrong.values())}.")
    for reason, count in wrong.most_common():
        print(f"- {reason}: {count}")
    print("\n| question | answer | conclusions | false |\n|---|---|---:|---:|")
    for question, answer in sorted({key[:2] for key in held}):
        yes, no = held[question, answer, True], held[question, answer, False]
        if yes + no:
            print(f"| {question} | {answer} | {yes + no:,} | {no} ({no / (yes + no):.1%}) |")
    for question in sorted({key[0] for key in held}):
        yes = sum(n for key, n in held.items() if key[0] == question and key[2] is True)
        no = sum(n for key, n in held.items() if key[0] == question and key[2] is False)
        if yes + no:
            print(f"| **{question}** | all | {yes + no:,} | {no} ({no / (yes + no):.1%}) |")
    print("\nHow often a question is left open, by budget:\n")
    names = [f"to {budget:.0f} s" for budget in BUDGETS]
    print(f"| question | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    for question in sorted({key[0] for key in by_budget}):
        cells = []
        for budget in BUDGETS:
            left, all_ = (by_budget[question, budget, open_] for open_ in (True, False))
            cells.append(f"{left / (left + all_):.0%}" if left + all_ else "–")
        print(f"| {question} | {' | '.join(cells)} |")


def tally(seeds):
    """Verdicts by question, answer and truth; false logical parts; and what is left open."""
    held, wrong, by_budget = Counter(), Counter(), Counter()
    for seed in seeds:
        world = drawn(seed)
        lines = Lines(world)
        judge = Judge(world, measured(world, lines.visited))
        budget = next(most for most in BUDGETS if world.budget_s <= most + 1)
        wrong.update(baselines_wrong(judge))
        for verdict in chain(judge.verdicts(), judge.of_verbs(), lines.verdicts):
            held[str(verdict.question), str(verdict.answer), verdict.true] += 1
            wrong.update(f"{verdict.question}: {text}" for text in verdict.wrong)
            open_ = verdict.answer is Answer.NOT_KNOWN
            by_budget[str(verdict.question), budget, open_] += 1
    return held, wrong, by_budget


if __name__ == "__main__":
    main()
