"""`attnbench models`: what is registered, and what of it runs here."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from attnbench.cli import console
from attnbench.cli.stopping import stoppable
from attnbench.device import choose
from attnbench.errors import UnknownMechanism


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
    from attnbench.cli.starting import own_server
    from attnbench.registry import names, unknown
    from attnbench.workloads import reading

    own_file = ".py:" in pattern
    found = [pattern] if own_file else [name for name in names() if fnmatchcase(name, pattern)]
    if not found:
        raise UnknownMechanism(unknown(pattern, names()))
    place = choose(device).name
    with stoppable(lambda: "nothing was kept"), own_server(1) as server:
        rows = reading.describe(found, place, server)
        if verify:
            show_checks({name: reading.verify(name, server) for name in found}, json_)
            return
    if json_:
        console.data(rows if len(rows) > 1 else rows[0])
    elif len(found) == 1:
        show_one(rows[0])
    else:
        show_all(rows)


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
            explained = bad or ([] if passed else mine)
            reason = f"{explained[0]['trial']}: {explained[0]['reason']}" if explained else ""
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


def show_all(rows: Sequence[Mapping[str, Any]]) -> None:
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


def show_one(row: Mapping[str, Any]) -> None:
    """Equations, parameters, options with defaults, forms, source."""
    from attnbench.units import count

    shown = console.out().print
    shown((row["equations"] or row["name"]).rstrip())
    paper = row["paper"]
    where = (paper["title"], f"{paper['authors']} {paper['year'] or ''}".strip(), paper["source"])
    shown(f"\nPaper      {', '.join(filter(None, where))}")
    shown(f"Class      {row['class']}; {row['complexity']}; causal: {row['causal']}")
    if row["declared"]:
        shown(f"Parameters {row['parameters']:,} at D = 256, H = 16, N = 1,024")
    shown("Forms")
    for form, says in row["forms"].items():
        flops = row["flops"][form]
        work = f"{count(flops['projections'])} + {count(flops['core'])} FLOPs (projections + core)"
        work = f"; {work}, one sequence of 1,024" if row["declared"] else ""
        default = ", the default here" if form == row["default"] else ""
        shown(f"  {form:10} {says}{default}{work}")
    shown("Options")
    for option, default in row["options"].items():
        shown(f"  {option} = {default}")
    shown(f"  {row['options_mean']}")
