"""`attnbench models`: what is registered, and what of it runs here."""

from dataclasses import asdict, fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnbench.cli import console, options
from attnbench.errors import CannotRun, UnknownMechanism
from attnbench.records import Level, Workload

if TYPE_CHECKING:
    from attnbench.contract import Card


def models(
    pattern: Annotated[str, typer.Argument(help="A name, or a pattern such as synth*.")] = "*",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    verify: Annotated[
        bool, typer.Option("--verify", help="Run the contract's checks, each on small sizes.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List mechanisms with class, complexity and forms; one by name in full."""
    console.begin("reading mechanisms")
    from attnbench.registry import card, names, unknown

    if ".py:" in pattern:
        found = (pattern,)
    else:
        found = tuple(name for name in names() if fnmatchcase(name, pattern))
    if not found:
        raise UnknownMechanism(unknown(pattern, names()))
    if verify:
        show_checks({name: checks(name) for name in found}, json_)
        return
    place = options.device(device)
    rows = [describe(name, card(name), place) for name in found]
    if json_:
        console.data(rows if len(rows) > 1 else rows[0])
    elif len(found) == 1:
        show_one(found[0], card(found[0]), rows[0])
    else:
        show_all(rows)


def describe(name: str, its: "Card", device: str) -> dict[str, Any]:
    """A card as data, with which forms run on the device or why not."""
    workload = Workload(batch=1, seq_len=1024, level=Level.ATTENTION, device=device)
    config = its.config()
    return {
        "name": name,
        "class": its.family,
        "complexity": its.cost.printed,
        "causal": its.causality,
        "forms": {form: its.refusal(form, config, workload) or "runs" for form in its.forms},
        "default": its.default(config, workload),
        "parameters": its.parameters(config, workload),
        "flops": {
            form: asdict(module.flops(config, workload)) for form, module in its.forms.items()
        },
        "options": {f.name: f.default for f in fields(config)},
        "paper": asdict(its.paper),
    }


def checks(name: str) -> list[dict[str, str]]:
    """What the contract's checks say of a mechanism, in a process of its own.

    Raises `CannotRun` if the process dies, as a mechanism may make it.
    """
    from dataclasses import asdict

    from attnbench.cli.measuring import PRELOAD, START_TIMEOUT_S, WORKER
    from attnbench.records import Settings
    from attnbench.run.launch import Launcher

    reply = Launcher(WORKER, PRELOAD)(
        {"verify": name, "settings": asdict(Settings(threads=1))}, START_TIMEOUT_S
    )
    if reply.answer is None:
        ended = "took too long" if reply.timed_out else f"ended with exit code {reply.exit_code}"
        raise CannotRun(
            f"the process that verified {name} {ended}: {reply.log or 'it said nothing'}"
        )
    return reply.answer["checks"]


def show_checks(found: dict[str, list[dict[str, str]]], as_json: bool) -> None:
    """One line for each check of each mechanism; leaves with 1 if any failed."""
    from attnbench.render.grid import Table, words
    from attnbench.render.terminal import table

    if as_json:
        console.data(found)
    rows = []
    for name, results in found.items():
        for check in dict.fromkeys(each["check"] for each in results):
            mine = [each for each in results if each["check"] == check]
            bad = [each for each in mine if each["result"] == "failed"]
            passed = [each for each in mine if each["result"] == "passed"]
            told = bad or ([] if passed else mine)
            reason = f"{told[0]['trial']}: {told[0]['reason']}" if told else ""
            result = "failed" if bad else "passed" if passed else "skipped"
            count = f"{len(bad) or len(passed)} of {len(mine)}"
            rows.append(tuple(map(words, (name, check, result, count, reason))))
    failed = sum(row[2].text == "failed" for row in rows)
    if not as_json:
        shown = console.out()
        columns = ("mechanism", "check", "result", "trials", "reason")
        skipped = sum(row[2].text == "skipped" for row in rows)
        note = f"{failed} of {len(rows)} checks failed, {skipped} had nothing to check."
        grid = Table(name="checks", title="Contract", columns=columns, rows=tuple(rows), note=note)
        shown.print(table(grid, shown.width))
    if failed:
        raise typer.Exit(1)


def show_all(rows: list[dict[str, Any]]) -> None:
    """One line a mechanism; a form that does not run here stands in brackets."""
    from attnbench.render.grid import Table, words
    from attnbench.render.terminal import table

    columns = ("mechanism", "class", "complexity", "causal", "forms", "paper")
    cells = tuple(
        tuple(
            words(text)
            for text in (
                row["name"],
                row["class"],
                row["complexity"],
                row["causal"],
                " ".join(
                    form if says == "runs" else f"({form})" for form, says in row["forms"].items()
                ),
                " ".join(str(row["paper"][key] or "") for key in ("authors", "year")),
            )
        )
        for row in rows
    )
    note = "A form in brackets does not run here; `attnbench models NAME` says why."
    shown = console.out()
    grid = Table(name="models", title="Mechanisms", columns=columns, rows=cells, note=note)
    shown.print(table(grid, shown.width))


def show_one(name: str, its: "Card", row: dict[str, Any]) -> None:
    """Equations, parameters, options with defaults, forms, source."""
    import sys

    from attnbench.render.units import count

    shown = console.out().print
    own = sys.modules[its.forms["eager"].__module__].__doc__
    shown((own if its.declared and own else name).rstrip())
    paper = its.paper
    where = (paper.title, f"{paper.authors} {paper.year or ''}".strip(), paper.source)
    shown(f"\nPaper      {', '.join(filter(None, where))}")
    shown(f"Class      {row['class']}; {row['complexity']}; causal: {row['causal']}")
    if its.declared:
        shown(f"Parameters {row['parameters']:,} at D = 256, H = 16, N = 1,024")
    shown("Forms")
    for form, says in row["forms"].items():
        flops = row["flops"][form]
        work = f"{count(flops['projections'])} + {count(flops['core'])} FLOPs (maps + core)"
        work = f"; {work}, one sequence of 1,024" if its.declared else ""
        default = ", the default here" if form == row["default"] else ""
        shown(f"  {form:10} {says}{default}{work}")
    shown("Options")
    for option, default in row["options"].items():
        shown(f"  {option} = {default}")
    shown(f"  {its.config.__doc__}")
