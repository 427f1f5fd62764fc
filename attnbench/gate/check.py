"""A check of the working tree against a revision: count both, race both, report changes."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median

from attnbench.analysis.verdict import Verdict, of_count
from attnbench.device import find
from attnbench.errors import UsageError
from attnbench.gate import repository, rule
from attnbench.gate.cases import CheckedCase, CheckPlan, Compared, Counted, families, planned
from attnbench.gate.finding import TIME, Conditions, Finding, Report, counts, runs
from attnbench.gate.measuring import Measuring, Runner
from attnbench.gate.pairs import Evidence, Statistic
from attnbench.gate.repository import changed, shared
from attnbench.metrics import TABLE
from attnbench.records import Outcome, Selection
from attnbench.run.pairs import BASE, HEAD
from attnbench.store import selftest

FORMS_TIMEOUT_S = 60.0
NO_SELFTEST = "unknown, since no selftest was run on this machine; run attnbench selftest"

Families = Sequence[tuple[list[CheckedCase], Evidence]]


def against_revision(
    plan: CheckPlan,
    revision: str,
    selections: Sequence[Selection] | None,
    runner: Runner,
    *,
    only_changed: bool = False,
    folder: Path | None = None,
) -> Report:
    """The working tree against a revision, checked out in a temporary worktree.

    Without selections, the mechanisms whose files differ are checked: every form is counted, and
    the default is timed. Raises `UsageError` or `CannotRun`.
    """
    root = repository.root(folder or Path.cwd())
    commit = repository.commit(root, revision)
    changes = repository.changes(root, commit)
    notes = tuple(f"{file}, which all mechanisms share, differs too" for file in shared(changes))
    report = Report(
        base=f"{revision} ({commit[:10]})", head=repository.describe(root), findings=(), notes=notes
    )
    with runner.within(plan.budget_s), repository.worktree(root, commit, plan.budget_s) as tree:
        differing = changed(tree, root, changes)
        compared = wanted(differing, selections, only_changed, root)
        if not compared:
            if selections is None and any((c.head or "").endswith(".py") for c in changes):
                notes += ("no file that differs contains a card; name mechanisms with --models",)
            return replace(report, notes=notes)
        if selections is None:
            names = ", ".join(mechanism.selection.name for mechanism in compared)
            runner.announce(f"mechanisms that differ: {names}")
        compared = tuple(in_forms(compared, runner, root, every=selections is None))
        # read before the race, which may use up the budget
        quoted = selftest.sentence(runner.machine()) or NO_SELFTEST if plan.times else ""
        race = Measuring(plan, planned(plan, compared), runner, {BASE: tree, HEAD: root})
        race.race()
    return reported(report, race, quoted)


def wanted(
    differing: Sequence[Compared],
    selections: Sequence[Selection] | None,
    only_changed: bool,
    root: Path,
) -> Sequence[Compared]:
    """The selections, with `only_changed` those that differ; without selections all that differ."""
    if selections is None:
        return differing
    names = {mechanism.head.name for mechanism in differing if mechanism.head}
    selected = on_both_sides(selections, root)
    return [s for s in selected if s.selection.name in names] if only_changed else selected


def on_both_sides(selections: Sequence[Selection], root: Path) -> tuple[Compared, ...]:
    """Each selection for both sides, with paths relative to the repository. Raises `UsageError`."""
    sides = (replace(s, name=from_top(s.name, Path.cwd(), root)) for s in selections)
    return tuple(Compared(base=side, head=side) for side in sides)


def from_top(name: str, folder: Path, root: Path) -> str:
    """The name of a mechanism, with the path of a file made relative to the repository.

    Raises `UsageError` if the file, which will be run, is outside the repository.
    """
    if ".py:" not in name:
        return name
    path, _, card = name.rpartition(":")
    try:
        whole = (folder / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"no file {path!r} for mechanism {name!r}") from error
    if not whole.is_relative_to(root.resolve()):
        raise UsageError(f"{path!r} is outside the repository {root}")
    return f"{whole.relative_to(root.resolve()).as_posix()}:{card}"


def in_forms(
    compared: Sequence[Compared], runner: Runner, root: Path, *, every: bool = False
) -> Iterator[Compared]:
    """Patterns of forms expanded to those of the working tree.

    With `every`, all forms as well, except those that torch would have to compile.
    """
    for mechanism in compared:
        form = mechanism.selection.form
        pattern = form or ("*" if every else "")
        if form is None or not set("*?") & set(form):
            yield mechanism
        if not set("*?") & set(pattern):
            continue
        with runner.server.worker(root) as worker:
            name = mechanism.head.name if mechanism.head else ""
            answer = worker.ask(FORMS_TIMEOUT_S, do="forms", mechanism=name)
        unasked = () if form else answer.get("compiled", ())
        for known in answer.get("forms", ()):
            if fnmatchcase(known, pattern) and known not in unasked:
                yield mechanism.in_form(known, timed=form is not None)


def reported(report: Report, race: Measuring, quoted: str) -> Report:
    """The report with the findings of a race and how it measured."""
    plan, cases = race.plan, race.cases
    grouped = list(families(cases))
    contaminated = rule.contaminated([evidence for _, evidence in grouped], plan.threshold)
    single = [evidence for members, evidence in grouped if len(members) == 1]
    return replace(
        report,
        findings=(*counted(cases), *broken(cases), *times(plan, grouped, bool(contaminated))),
        contaminated=contaminated,
        notes=(*notes(plan, cases), *report.notes),
        conditions=Conditions(
            plan=plan,
            clock=find(plan.device).clock if single else "",
            worst_floor=max((t.view(Statistic.TYPICAL).floor for t in single), default=None),
            elapsed_s=time.monotonic() - race.begun,
            selftest=quoted,
        ),
    )


def counted(cases: Sequence[CheckedCase]) -> Iterator[Finding]:
    """Cases that did not run on both sides, and the counts of those that ran."""
    for case in cases:
        base, head = case.counted[BASE], case.counted[HEAD]
        if not_both := runs(case.name, case.label, base, head):
            yield not_both
        else:
            yield from counts(case.name, case.label, base.values, head.values)


def broken(cases: Sequence[CheckedCase]) -> Iterator[Finding]:
    """Cases that ran when they were counted but failed when they were timed."""
    for case in cases:
        if case.failed is None:
            continue
        ok = Counted(outcome=Outcome.OK)
        failed = Counted(outcome=case.failed.outcome, reason=case.failed.reason)
        base, head = (ok, failed) if case.failed.entrant == HEAD else (failed, ok)
        if failure := runs(case.name, case.label, base, head):
            yield failure


def times(plan: CheckPlan, grouped: Families, contaminated: bool) -> Iterator[Finding]:
    """The verdict on the time of each case, and on the means over lengths."""
    judged = rule.judge([evidence for _, evidence in grouped], plan.threshold)
    for (members, evidence), (verdict, effect, reason, statistic) in zip(
        grouped, judged, strict=True
    ):
        single = members[0] if len(members) == 1 else None
        known = effect.low > -math.inf
        ratio, low, high = (math.exp(log) if known else None for log in effect[:3])
        sides = (single.seconds(side, statistic) if single else () for side in (BASE, HEAD))
        base, head = (median(seconds) if seconds else None for seconds in sides)
        if contaminated and verdict in (Verdict.SLOWER, Verdict.FASTER):
            reason = "the check is contaminated: base differs from base"
        elif single and single.skipped and verdict is Verdict.UNSURE:
            reason = single.skipped
        yield Finding(
            mechanism=members[0].name,
            case=evidence.name,
            metric=TIME,
            base=base,
            head=head,
            ratio=ratio,
            low=low,
            high=high,
            verdict=verdict,
            reason=reason,
            fails=verdict is Verdict.SLOWER and not contaminated,
            batch=single.batch if single else None,
            cases=len(members),
        )


def notes(plan: CheckPlan, cases: Sequence[CheckedCase]) -> Iterator[str]:
    """What a reader should know about the cases."""
    for case in cases:
        base, head = (case.counted[side].form for side in (BASE, HEAD))
        if base and head and base != head:
            yield f"{case.label}: the default form is {base} on base and {head} on head"
    moved, copying = TABLE["moved_bytes"], []
    for case in cases:
        bytes_moved = [case.counted[side].values.get(moved.key) for side in (BASE, HEAD)]
        if of_count(bytes_moved[0], bytes_moved[1], moved) is Verdict.SLOWER:
            copying.append(case.label)
    if plan.times and copying and find(plan.device).hides_page_faults:
        more = f" and {len(copying) - 1} more" if len(copying) > 1 else ""
        yield (
            f"{copying[0]}{more}: head moves more bytes than base; processes keep freed memory"
            " while they are timed, which hides part of the cost of copies in normal use"
        )
