"""Whether what `recommend`, `compare`, `claims` and `explain` conclude is true of a world.

Each takes the sweep of a world as a stored one; `compare` a second sweep of the same world too, in
which one series costs another amount, and `explain` a sweep of two series at one length.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from attnbench.analysis.conclusions import Answer, Conclusion
from attnbench.analysis.report import analyse
from attnbench.commands.claims.claim import Check, Claim, Range
from attnbench.commands.claims.judging import judge_claim
from attnbench.commands.claims.page import judged
from attnbench.commands.compare.analysis import compare
from attnbench.commands.compare.table import changes
from attnbench.commands.explain.analysis import by_level
from attnbench.commands.explain.page import costs, sentences
from attnbench.commands.recommend.analysis import fitting, recommend, recommendations
from attnbench.commands.recommend.page import ranking, recommended
from attnbench.errors import CannotRun
from attnbench.records import Mode, Selection
from attnbench.records.metrics import MEMORY, TIME
from tests.running.worlds import measured

SPANNING = ("all", "never", "always", "only", "none", "every")
FACTORS = (1.0, 1.6, 0.5)  # by which a series changes between two sweeps
LIMIT = 64 << 20  # bytes, of --memory


@dataclass(frozen=True)
class Said:
    """A conclusion of a verb, and whether it is true; None where it leaves the question open."""

    conclusion: Conclusion
    true: bool | None
    wrong: tuple[str, ...] = ()


def said(judge_) -> Iterator[Said]:
    """All that the verbs conclude of the world of a judge, and sentences with too strong words."""
    yield from recommends(judge_)
    yield from claims(judge_)
    yield from compares(judge_)
    yield from explains(judge_)


def strong(texts) -> tuple[str, ...]:
    """Words that speak of all lengths, which no sentence of these verbs may have."""
    found = {word.strip(".,;()") for text in texts for word in text.lower().split()}
    return tuple(f"the word {word}" for word in SPANNING if word in found)


def texts_of(table):
    """What the cells of a table say."""
    return [cell.text for row in table.rows for cell in row]


def unmeasured(judge_, conclusion) -> Iterator[str]:
    """Whether a conclusion speaks of a time or peak that was not measured in its scope."""
    known = {TIME: judge_.times, MEMORY: judge_.peaks}.get(conclusion.quantity)
    named = (*conclusion.series, *conclusion.against)
    if known is not None and conclusion.is_known:
        for n in conclusion.scope.lengths:
            if any((Mode(conclusion.mode), series, n) not in known for series in named):
                yield "speaks of what was not measured"


def recommends(judge_) -> Iterator[Said]:
    """Which is the fastest at the middle length, of what fits into a limit."""
    analysis = judge_.analysis
    lengths = sorted({*map(int, analysis.cases["seq_len"])})
    seq_len = lengths[len(lengths) // 2]
    for limit in (None, LIMIT):
        advice = recommend(analysis, seq_len, limit)
        words = strong(texts_of(ranking(advice)))
        for one, block in recommendations(analysis, advice):
            wrong = [*unmeasured(judge_, one), *strong([recommended(one, block)]), *words]
            if {*one.series, *one.against} & judge_.suspects():
                wrong.append("ranks a suspect")
            known = one.answer in (Answer.WINNER, Answer.TIE)
            yield Said(one, judge_.cheapest(one) if known else None, tuple(wrong))
    for one in fitting(analysis, seq_len, LIMIT):
        peak = judge_.cost(MEMORY, Mode(one.mode), one.series[0], seq_len)
        true = None
        if one.is_known and one.scope.lengths:
            true = (peak <= LIMIT) == (one.answer is Answer.FITS)
        yield Said(one, true, tuple(unmeasured(judge_, one)))


def asked(world) -> Iterator[Claim]:
    """Claims about the first two series of a world, of each kind but counts."""
    names = [Selection(name=nature.name) for nature in world.natures]
    a, b = names[0], names[-1]
    middle = world.lengths[len(world.lengths) // 2]
    for mode in world.modes:
        for value in (Range(0.0, 1.0), Range(0.0, 0.5)):
            yield claim(Check("less", (a,), (b,), mode=mode, value=value))
        below, above = Range(0.0, float(middle)), Range(float(middle), float("inf"))
        for value in (below, above):
            yield claim(Check("crossover", (a,), (b,), mode=mode, value=value))
        yield claim(Check("less", (a,), (b,), quantity=MEMORY, mode=mode))


def claim(check):
    """The claim of one check."""
    return Claim({"claim": "C."}, [check])


def claims(judge_) -> Iterator[Said]:
    """Whether what is claimed of two series holds at the lengths that were measured."""
    world = judge_.world
    if len(world.natures) < 2:
        return
    for asserted in asked(world):
        (check,) = asserted.checks
        found = judge_claim(judge_.analysis, asserted)
        table = judged([("C", found.conclusion, found.deciding)])
        one = found.conclusion
        holds = {Answer.REPRODUCED: True, Answer.CONTRADICTED: False}.get(one.answer)
        true = None if holds is None else holds == actually(judge_, check, found)
        wrong = [*strong(texts_of(table)), *unmeasured_checks(judge_, found)]
        if holds is None and one.decided_by == "" and not one.reason:
            wrong.append("is not known without a reason")
        yield Said(one, true, tuple(wrong))


def unmeasured_checks(judge_, found) -> Iterator[str]:
    """What the checks that decide a claim say of what was not measured."""
    for one in found.deciding:
        yield from unmeasured(judge_, one)
        if {*one.series, *one.against} & judge_.suspects():
            yield "judges a suspect"


def actually(judge_, check, found):
    """Whether a check is true at the lengths of the conclusions that decide it."""
    mode, (a,), (b,) = check.mode, check.a, check.b
    names = [f"{one.name}:eager" for one in (a, b)]
    lengths = sorted({n for one in found.deciding for n in one.scope.lengths})

    def ratio(n):
        x, y = (judge_.cost(check.quantity, mode, name, n) for name in names)
        return x / y

    if check.predicate == "crossover":
        above = [ratio(n) > 1 for n in lengths]
        late = [n for n, is_above in zip(lengths, above, strict=True) if not is_above]
        # B is the faster for good after the last length at which it is not
        least = max(late, default=0)
        most = min((n for n in lengths if n > least), default=float("inf"))
        if found.conclusion.answer is Answer.REPRODUCED and not above[-1]:
            return False  # it was not seen to cross
        return check.value.low <= most and least <= check.value.high
    within = [check.value.low <= ratio(n) <= check.value.high for n in lengths]
    return all(within)


def compares(judge_) -> Iterator[Said]:
    """What changed from the sweep to another of the world, in which one series costs more."""
    world = judge_.world
    factor = FACTORS[world.seed % len(FACTORS)]
    natures = (replace(world.natures[0], base_s=factor * world.natures[0].base_s),)
    other = replace(world, natures=(*natures, *world.natures[1:]), seed=world.seed + 1_000_000)
    second = analyse(measured(other))
    found = compare(judge_.analysis, second)
    words = strong(texts_of(changes(found)))
    timed = second.cases[second.cases[TIME] > 0]
    later = {
        (Mode(mode), series, int(n))
        for mode, series, n in zip(timed["mode"], timed["series"], timed["seq_len"], strict=True)
    }
    for one in found.conclusions:
        if one.quantity != TIME:
            continue
        wrong = [*unmeasured(judge_, one), *words]
        mode, (series,) = Mode(one.mode), one.series
        if one.is_known and any((mode, series, n) not in later for n in one.scope.lengths):
            wrong.append("speaks of what was not measured")
        true = factor if series == f"{natures[0].name}:eager" else 1.0
        answers = {
            Answer.COSTS_MORE: true > 1,
            Answer.COSTS_LESS: true < 1,
            Answer.SAME: true == 1,
        }
        yield Said(one, answers.get(one.answer), tuple(wrong))


def explains(judge_) -> Iterator[Said]:
    """Which of the first two series takes longer, in a sweep of them alone at one length."""
    world = judge_.world
    if len(world.natures) < 2:
        return
    seq_len = world.lengths[len(world.lengths) // 2]
    two = (world.natures[0], world.natures[-1])
    mode = world.modes[:1]
    small = replace(
        world,
        natures=two,
        lengths=(seq_len,),
        modes=mode,
        budget_s=world.budget_s / 4,
        against=None,
    )
    try:
        levels = by_level([measured(small)])
    except CannotRun:
        return
    words = strong([*sentences(levels), *texts_of(costs(levels))])
    for level in levels:
        one = level.conclusion
        slower = two[0].seconds(mode[0], seq_len) > two[1].seconds(mode[0], seq_len)
        answers = {Answer.COSTS_MORE: slower, Answer.COSTS_LESS: not slower}
        wrong = list(words)
        suspect = any(nature.suspect for nature in two)
        if one.is_known and suspect:
            wrong.append("ranks a suspect")
        yield Said(one, answers.get(one.answer), tuple(wrong))
