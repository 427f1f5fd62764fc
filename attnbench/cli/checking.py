"""What `check` does between its options and its report: choose, start processes, compare."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from attnbench import __version__
from attnbench.cli import console
from attnbench.cli.starting import tree_server
from attnbench.errors import CannotRun, UsageError
from attnbench.gate import stored, worktree
from attnbench.gate.cases import Chosen, Line, Plan, workload
from attnbench.gate.finding import Report
from attnbench.gate.measuring import Gate
from attnbench.records import Case, Fingerprint
from attnbench.run.pairs import BASE, HEAD
from attnbench.run.processes import Server
from attnbench.run.workers import OverBudget
from attnbench.store import baseline as files


def against_revision(
    plan: Plan,
    revision: str,
    models: str | None = None,
    changed: bool = False,
    *,
    folder: Path | None = None,
    server: Server | None = None,
) -> Report:
    """The working tree against a revision of its repository, checked out beside it.

    Of a mechanism that was not named, every form is counted and the default is timed.
    """
    from attnbench.gate.changed import changed as found_changed
    from attnbench.gate.changed import shared

    end_s = ending(plan)
    root = worktree.root(folder or Path.cwd())
    commit = worktree.commit(root, revision)
    changes = worktree.changes(root, commit)
    head, base = worktree.describe(root), f"{revision} ({commit[:10]})"
    with worktree.worktree(root, commit, plan.budget_s) as tree:
        touched = found_changed(tree, root, changes)
        if models is None:
            chosen = touched
        else:
            chosen = tuple(selected(models, root))
            if changed:
                names = {each.head for each in touched}
                chosen = tuple(each for each in chosen if each.head in names)
        ours = tuple(f"{file} differs too, which all mechanisms share" for file in shared(changes))
        if models is None and not chosen and any((c.head or "").endswith(".py") for c in changes):
            ours += ("no file that differs holds a card; name other mechanisms with --models",)
        if not chosen:
            return Report(base=base, head=head, findings=(), notes=ours)
        tell(chosen, models)
        with started(server, plan, end_s, own=True) as running, watched() as observe:
            whole = replace(plan, chosen=tuple(formed(chosen, running, root, models is None)))
            quoted = quote(machine(running, root, plan.device)) if plan.times else {}
            report = Gate(whole, running, {BASE: tree, HEAD: root}, observe).run(base, head)
    conditions = {**report.conditions, **quoted}
    return replace(report, notes=(*report.notes, *ours), conditions=conditions)


def against_file(plan: Plan, path: Path, models: str | None) -> Report:
    """What is here against what a file says, case by case."""
    kept = files.load(path)
    lines = list(from_file(kept, models, plan))
    if not lines:
        raise UsageError(f"'{path}' holds no case of --models {models}")
    if len({line.workload["device"] for line in lines} - {plan.device}):
        raise CannotRun(f"'{path}' was saved on another device than --device {plan.device}")
    with here(plan, lines) as (gate, machine):
        batches = {label: e.time.batch for label, e in kept.cases.items() if e.time is not None}
        times = plan.times and not kept.machine.differences(machine)
        stored.measure(gate, times, batches)
        report = stored.compare(gate, kept, machine, str(path), "the working tree")
    return replace(report, notes=(*report.notes, *absent(kept, models)))


def save(plan: Plan, path: Path, models: str) -> tuple[files.Baseline, list[str]]:
    """Measure and write the file; also what could not be kept, a line each."""
    with here(plan, None, models) as (gate, machine):
        stored.measure(gate, plan.times, {})
        made = stored.baseline(gate, __version__, machine)
        answers = [(stored.asked_label(line), line.answers[HEAD]) for line in gate.lines]
    files.save(made, path)
    left_out = [f"{label}: {a['reason']}" for label, a in answers if a["outcome"] != "ok"]
    return made, left_out


@contextmanager
def here(
    plan: Plan, lines: list[Line] | None, models: str = ""
) -> Iterator[tuple[Gate, Fingerprint]]:
    """A gate with the working tree as its only side, and what this machine is."""
    root = top()
    with started(None, plan, ending(plan), own=False) as server, watched() as observe:
        if lines is None:
            chosen = tuple(formed(tuple(selected(models, root)), server, root, False))
            plan = replace(plan, chosen=chosen)
        gate = Gate(plan, server, {HEAD: root}, observe)
        gate.lines = gate.lines if lines is None else lines
        yield gate, machine(server, root, plan.device)


def ending(plan: Plan) -> float:
    """The moment of `time.monotonic` at which a budget that begins now is over."""
    return math.inf if plan.budget_s is None else time.monotonic() + plan.budget_s


@contextmanager
def started(server: Server | None, plan: Plan, end_s: float, own: bool) -> Iterator[Server]:
    """The server given, or a new one for the block; torch is loaded.

    Raises `CannotRun` where the budget ends before there is anything to report.
    """
    with nullcontext(server) if server else tree_server(own=own, seed=plan.seed) as running:
        try:
            with running.until(end_s):
                running.wait()
                yield running
        except OverBudget as error:
            raise CannotRun(f"--budget of {plan.budget_s:.0f} s {error}; raise it") from error


def machine(server: Server, root: Path, device: str) -> Fingerprint:
    """What this machine is, as far as times depend on it. Raises `CannotRun`."""
    from attnbench.measure import environment

    with server.worker(root) as side:
        started = side.started
    if started["outcome"] != "ok":
        raise CannotRun(f"mechanisms cannot be loaded: {started['reason']}")
    return Fingerprint(
        processor=environment.processor(),
        cores=environment.cores(),
        threads=server.threads,
        torch=started["torch"],
        device="cpu" if device == "cpu" else started["gpu"],
    )


def quote(here: Fingerprint) -> dict[str, str]:
    """What the last selftest of this machine said."""
    from attnbench.store import selftest

    none = "no selftest was run on this machine; attnbench selftest shows what a check can find"
    return {"selftest": selftest.sentence(here) or none}


def top() -> Path:
    """The repository's folder, or the current one outside of a repository."""
    try:
        return worktree.root(Path.cwd())
    except (UsageError, CannotRun):
        return Path.cwd()


def selected(models: str, root: Path) -> Iterator[Chosen]:
    """What `--models` stands for; files are named from the repository's top."""
    from attnbench.workloads import axes
    from attnbench.workloads.presets import expand

    for part in axes.parts(models, "--models"):
        for one in expand(part):
            name = within(one.name, Path.cwd(), root)
            yield Chosen(base=name, head=name, form=one.form, options=one.options)


def within(name: str, folder: Path, root: Path) -> str:
    """The name; a file named from the folder is named from the repository's top instead.

    Raises `UsageError` if the file is not the repository's: it is going to be run.
    """
    if ".py:" not in name:
        return name
    path, _, card = name.rpartition(":")
    try:
        whole = (folder / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"no file {path!r} for mechanism {name!r}") from error
    if not whole.is_relative_to(root.resolve()):
        raise UsageError(f"{path!r} is outside of the repository {root}")
    return f"{whole.relative_to(root.resolve()).as_posix()}:{card}"


def formed(
    chosen: tuple[Chosen, ...], server: Server, root: Path, all_forms: bool
) -> Iterator[Chosen]:
    """Patterns of forms as the forms that the working tree has; all of them where asked."""
    for each in chosen:
        pattern = each.form or "*"
        if not set("*?") & set(pattern) or (each.form is None and not all_forms):
            yield each
            continue
        if each.form is None:
            yield each
        with server.worker(root) as side:
            answer = side.ask(60.0, do="forms", mechanism=each.head or "")
        for form in answer.get("forms", ()):
            if fnmatchcase(form, pattern):
                yield replace(each, form=form, timed=each.form is not None)


def from_file(kept: files.Baseline, models: str | None, plan: Plan) -> Iterator[Line]:
    """The cases of a baseline, as it counted them."""
    root = top()
    wanted = None if models is None else {each.name for each in selected(models, root)}
    for label in kept.cases:
        case = Case.read(label)
        if wanted is None or case.mechanism in wanted:
            name = within(case.mechanism, root, root)
            chosen = Chosen(base=name, head=name, form=case.form, options=case.options)
            yield Line(chosen=chosen, workload=asked(case.workload, plan))


def asked(w: Any, plan: Plan) -> dict[str, Any]:
    """A workload as a side is asked for it."""
    like = replace(plan, width=w.width, heads=w.heads, level=w.level, dtype=w.dtype)
    return {**workload(like, w.mode, w.seq_len), "batch": w.batch, "device": w.device}


def absent(kept: files.Baseline, models: str | None) -> Iterator[str]:
    """Registered mechanisms that a baseline does not know."""
    from attnbench.registry import names

    known = {Case.read(label).mechanism for label in kept.cases}
    new = [name for name in names() if name not in known]
    if models is None and new:
        yield f"not in the baseline: {', '.join(new)}; --save them to have them gated"


def tell(chosen: tuple[Chosen, ...], models: str | None) -> None:
    """Say what was chosen, where the program chose."""
    if models is None:
        names = ", ".join(each.name for each in chosen)
        console.err().print(f"mechanisms that differ: {names}")


@contextmanager
def watched() -> Iterator[Any]:
    """Show on a terminal what is done now; a log gets nothing."""
    shown = console.err()
    if not shown.is_terminal:
        yield lambda text: None
        return
    with shown.status("starting", refresh_per_second=2) as status:
        yield lambda text: status.update(text)
