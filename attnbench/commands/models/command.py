"""`attnbench models`: the registered mechanisms, and which of them run here."""

from collections.abc import Mapping, Sequence
from textwrap import shorten
from types import MappingProxyType
from typing import Annotated, Any

import typer

from attnbench.commands import console, options
from attnbench.commands.options import argument, switch
from attnbench.commands.stopping import stoppable
from attnbench.devices import AUTO, choose
from attnbench.errors import UsageError
from attnbench.mechanisms import catalogue
from attnbench.records import PASSES, selection, units
from attnbench.report import grid
from attnbench.running.request.completion import mechanism_or_group

CLASSES: Mapping[str, str] = MappingProxyType({
    "full": "every token sees every other",
    "FP": "fixed patterns",
    "LP": "learned patterns",
    "M": "memory",
    "LR": "low rank",
    "KR": "kernel",
    "RC": "recurrence",
    "SH": "shared or compressed keys",
    "ST": "a state of fixed size",
    "MX": "fixed mixing of tokens",
})  # fmt: skip
OF_SURVEY = ("FP", "LP", "M", "LR", "KR", "RC")
FORMS = "Forms compute the same function in different ways; eager is as the paper writes it."


def models(
    pattern: Annotated[
        str,
        argument(
            "NAME",
            "A name, a pattern such as synth*, a group such as @modern, or a file of yours.",
            mechanism_or_group,
        ),
    ] = "*",
    verify: bool = switch("--verify", "Check outputs, gradients, masks and counts on small sizes."),
    stress: bool = switch("--stress", "With --verify: errors on inputs that break kernels, too."),
    json_: bool = options.as_json(),
) -> None:
    """List mechanisms with class, complexity and forms, or show one in full."""
    console.begin("reading mechanisms")
    from attnbench.running import plan
    from attnbench.running.session import reading_server

    matches = named(pattern)
    if stress and not verify:
        raise UsageError("--stress has no effect without --verify")
    if verify and any(map(selection.layers, matches)):
        raise UsageError("--verify checks mechanisms; name the layers of a stack one by one")
    chosen = choose(AUTO)

    with stoppable(lambda: "nothing was kept"), reading_server() as server:
        if verify:
            show_checks({name: plan.verify(name, server, stress) for name in matches}, json_)
            return
        rows = plan.describe(matches, chosen.name, server)
    if json_:
        console.data(rows if len(rows) > 1 else rows[0])
    elif len(rows) == 1:
        show_one(rows[0])
    else:
        show_all(rows)


def named(pattern: str) -> list[str]:
    """The mechanisms that a name, pattern, group or file means.

    Raises `UsageError`, also for options and forms of one, of which nothing is shown or checked.
    """
    chosen = catalogue.expand(pattern)
    one = next((each for each in chosen if each.form or each.options), None)
    if one is not None and not pattern.startswith("@"):
        raise UsageError(
            f"{pattern!r} has a form or options; mechanisms are shown and checked in all their"
            f" forms, with the usual options: write {one.name}"
        )
    return list(dict.fromkeys(one.name for one in chosen))


def show_checks(checked: dict[str, list[dict[str, str]]], as_json: bool) -> None:
    """Print one row for each check of each mechanism; exit with 1 if any failed."""
    rows = []
    for name, results in checked.items():
        for check in dict.fromkeys(result["check"] for result in results):
            trials = [result for result in results if result["check"] == check]
            found = [trial["result"] for trial in trials]
            outcome = next(
                (word for word in ("failed", "noted", "passed") if word in found), "skipped"
            )
            first = trials[found.index(outcome)]
            reason = f"{first['trial']}: {first['reason']}" if first["reason"] else ""
            rows.append((name, check, outcome, f"{found.count(outcome)} of {len(trials)}", reason))
    failures = sum(row[2] == "failed" for row in rows)
    if as_json:
        console.data(checked)
    else:
        columns = ("mechanism", "check", "result", "trials", "reason")
        skipped = sum(row[2] == "skipped" for row in rows)
        note = f"{failures} of {len(rows)} checks failed, {skipped} had nothing to check."
        if any(row[2] == "noted" for row in rows):
            note += " Noted is what a module of one's own need not do, and does not."
        show_words("Contract", columns, rows, note)
    if failures:
        raise typer.Exit(1)


def show_words(
    title: str, columns: tuple[str, ...], rows: Sequence[Sequence[str]], note: str
) -> None:
    """Print a table of text."""
    cells = tuple(tuple(map(grid.words, row)) for row in rows)
    console.show(
        grid.Table(name=title.lower(), title=title, columns=columns, rows=cells, note=note)
    )


def show_all(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print one line for each mechanism, with the first of its forms."""
    lines = [[row[key] for key in ("name", "complexity", "causal", "class")] for row in rows]
    columns = ("mechanism", "complexity", "causal", "class", "forms")
    for line, row in zip(lines, rows, strict=True):
        running = " ".join(form for form, says in row["forms"].items() if says == "runs")
        line.append(shorten(running, 30, placeholder=" …"))
    note = "`attnbench models NAME` shows the rest, and why a form does not run here."
    survey = [f"{code} {CLASSES[code]}" for code in OF_SURVEY]
    others = [f"{code} {CLASSES[code]}" for code in CLASSES if code not in OF_SURVEY]
    classes = f"Classes of the survey: {', '.join(survey)}; others: {', '.join(others)}."
    groups = f"Groups, for --models: {', '.join(catalogue.GROUPS)}."
    show_words("Mechanisms", columns, lines, f"{note} {FORMS} {classes} {groups}")


def class_in_words(family: str) -> str:
    """`FP+M (fixed patterns, memory)` of the class `FP+M`; nothing of what is in no class."""
    if family == units.NOTHING:
        return ""
    return f"{family} ({', '.join(CLASSES[code] for code in family.split('+'))})"


def show_one(row: Mapping[str, Any]) -> None:
    """Print equations, paper, parameters, forms, and options with their defaults."""
    shown = console.out().print
    # a terminal folds wide lines itself
    shown((row["equations"] or row["name"]).rstrip(), soft_wrap=True)
    paper = row["paper"]
    cited = (paper["title"], f"{paper['authors']} {paper['year'] or ''}".strip(), paper["source"])
    heading = "Paper" if row["declared"] or paper["authors"] else "Module"  # of a user, without one
    shown(f"\n{heading:10} {', '.join(dict.fromkeys(filter(None, cited)))}")
    if row["declared"]:
        family = class_in_words(row["class"])
        costs = "; ".join(filter(None, (family, row["complexity"])))
        shown(f"Class      {costs}; causal: {row['causal']}")
    else:
        shown(f"Costs      unknown until it is measured; causal: {row['causal']}")
    legend = []
    for symbol, (meaning, *names) in row["symbols"].items():
        set_by = ", ".join(f"{name}={row['options'][name]}" for name in names)
        legend.append(f"{symbol}: {meaning} ({set_by})" if set_by else f"{symbol}: {meaning}")
    if legend:
        shown(f"Symbols    {'; '.join(legend)}")
    steps = [form for form, says in row["decode"].items() if says == "runs"]
    reasons = dict.fromkeys(row["decode"].values())
    shown(f"Decoding   {', '.join(steps) or f'not possible: {next(iter(reasons))}'}")
    if row["launches"]:
        shown(f"On a GPU   more launches, the longer a sequence: {row['launches']}")
    if row["waits"]:
        shown(f"Waiting    on a GPU the host waits within an iteration: {row['waits']}")
    if row["declared"]:
        shown(f"Parameters {row['parameters']:,} at D = 256, H = 16, N = 1,024")
    shown("Forms")
    width = max(map(len, row["forms"]))
    for form, says in row["forms"].items():
        parts = [says]
        for mode in PASSES if says == "runs" else ():
            if reason := row["refused"].get(f"{form} in {mode}"):
                parts.append(f"not in {mode}: {reason}")
        if form == row["default"]:
            parts.append("the default here")
        if (known := row["packages"].get(form)) and known["version"]:
            parts.append(f"{known['package']} {known['version']}")
            parts += [f"departs from the equations: {known['departs']}"] if known["departs"] else []
        if row["declared"] and (flops := row["flops"].get(form)):
            work = " + ".join(units.flops(flops[part]) for part in ("projections", "core"))
            parts.append(f"{work} (projections + core), one sequence of 1,024")
        shown(f"  {form:{width}}  {'; '.join(parts)}")
    if not row["options"]:
        shown("Options    none")
        return
    shown("Options")
    for name, default in row["options"].items():
        shown(f"  {name} = {default}")
    if row["options_mean"]:
        shown(f"  {row['options_mean']}")
