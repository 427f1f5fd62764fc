"""A report of any sweep, whatever is and is not known of each case."""

from dataclasses import asdict, replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from attnbench.analysis.report import analyse
from attnbench.commands import console
from attnbench.commands.compare import table as comparison
from attnbench.commands.compare.analysis import compare
from attnbench.commands.notebook import StoredSweep as Stored
from attnbench.commands.recommend.analysis import recommend, recommendations
from attnbench.commands.recommend.page import ranking, recommended
from attnbench.records import (
    Case,
    Cause,
    Level,
    Mode,
    Outcome,
    Part,
    Run,
    Sample,
    Shell,
    Workload,
)
from attnbench.records.metrics import ROWS, TIME
from attnbench.report import page, terminal
from attnbench.report.names import with_labels
from tests.commands.commands import python
from tests.sweeps import environment, planned, seconds, sweep

OWN, STACK = "mine.py:Mean", "stack(2*fastformer+transformer)"
SERIES = (("fastformer", "eager"), ("transformer", "eager"), ("transformer", "sdpa"),
          (OWN, "eager"), (STACK, "eager"), ("linformer", "eager"), ("performer", "eager"),
          ("mine.py:Half", "eager"))  # fmt: skip
LENGTHS = (1, 128, 512, 1000, 2048, 16_384)
VALUES = tuple(row.key for row in ROWS if row.key not in (TIME, "token_s", "tokens_per_s"))
NOTES = (
    "departs",
    "suspect",
    "uncounted",
    "package",
    "changed",
    "number_types",
    "attention_kernel",
    "arithmetic",
)
ENDS = (*((Outcome.SKIPPED, cause) for cause in Cause), *((o, None) for o in Outcome))


def undeclared(whole, mechanism):
    """The sweep with a mechanism whose module has no card: what it costs is not declared."""
    plan = (replace(p, declared=p.case.mechanism != mechanism) for p in whole.plan)
    return replace(whole, plan=tuple(plan))


def known(draw, case):
    """The runs of a case: any rounds of its time, its memory, single values, any end or none."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    laps, on_gpu = draw(st.sampled_from([0, 1, 4])), draw(st.booleans())
    numbers = st.dictionaries(st.sampled_from(VALUES), st.sampled_from([0.0, 1.0, 3e6]), max_size=6)
    notes = st.dictionaries(st.sampled_from(NOTES), st.just("x"), max_size=2)
    for round_ in draw(st.sets(st.integers(0, 2))):
        true = seconds(case.mechanism, case.workload) * float(np.exp(rng.normal(0, 0.1)))
        samples = tuple(
            Sample(1, true, true, true if on_gpu else None, true, 0.0, 0.0, lap if laps else None)
            for lap in range(max(1, laps))
        )
        yield Run(
            case=case.key, part=Part.TIME, round=round_, outcome=Outcome.OK, samples=samples,
            values=draw(numbers), notes=draw(notes), elapsed_s=1.0,
        )  # fmt: skip
    if draw(st.booleans()):
        peak = draw(st.sampled_from([{}, {"allocated_peak_bytes": 1e6}, {"state_bytes": 0.0}]))
        yield Run(
            case=case.key, part=Part.MEMORY, round=0, outcome=Outcome.OK,
            values={**peak, **draw(numbers)}, notes=draw(notes), elapsed_s=1.0,
        )  # fmt: skip
    if draw(st.booleans()):
        outcome, cause = draw(st.sampled_from(ENDS))
        part = draw(st.sampled_from(Part))
        yield Run(case=case.key, part=part, round=0, outcome=outcome, cause=cause, reason="no room")


@st.composite
def sweeps(draw):
    """A small sweep at any level, of passes, decoding or both, with anything known of each case."""
    level = draw(st.sampled_from(Level))
    modes = draw(st.lists(st.sampled_from(Mode), min_size=1, unique=True))
    if level is not Level.ATTENTION:
        modes = [mode for mode in modes if mode is not Mode.DECODE] or [Mode.INFERENCE]
    chosen = draw(st.lists(st.sampled_from(SERIES), min_size=1, max_size=8, unique=True))
    lengths = sorted(draw(st.sets(st.sampled_from(LENGTHS), min_size=1, max_size=5)))
    causal, shell = draw(st.booleans()), Shell() if level is Level.MODEL else None
    step = draw(st.sampled_from([1, 1, min(lengths)]))
    plan, runs = [], []
    for mechanism, form in chosen:
        for mode in modes:
            for n in lengths:
                batch = 1 if mode is Mode.DECODE else max(1, 8192 // n)
                size = Workload(
                    batch=batch, seq_len=n, level=level, mode=mode, shell=shell,
                    causal=causal or mode is Mode.DECODE, step=step if mode is Mode.DECODE else 1,
                )  # fmt: skip
                line = planned(Case(mechanism=mechanism, form=form, workload=size))
                if mechanism == STACK:
                    line = replace(line, layers=("fastformer:eager",) * 2 + ("transformer:eager",))
                refusal = draw(st.sampled_from(["", "", "", "no causal form"]))
                filled = mode is Mode.DECODE and draw(st.booleans())
                plan.append(replace(line, refusal=refusal, filled=filled))
                runs += known(draw, line.case)
    made = sweep([mechanism for mechanism, _ in chosen], lengths=tuple(lengths), rounds=0)
    request = replace(
        made.request, level=level, modes=tuple(modes), causal=causal,
        precision=draw(st.sampled_from([None, 0.02])),
    )  # fmt: skip
    machine = environment(matmul_flops=draw(st.sampled_from([None, 9.5e10])))
    whole = replace(
        made, request=request, plan=tuple(plan), runs=tuple(runs), sessions=(machine,),
        finished=draw(st.booleans()),
    )  # fmt: skip
    return undeclared(whole, OWN)


def of(analysis):
    """The sweep as Python and notebooks have it."""
    stored = Stored.__new__(Stored)
    stored.folder, stored._analysis = "folder", analysis
    return stored


def shown(tables, analysis, width):
    """The tables as a terminal of this width shows them."""
    screen = Console(width=width, force_terminal=True)
    with screen.capture():
        for table in with_labels(tables, analysis.answers.series):
            screen.print(terminal.table(table, width))


@pytest.mark.long
@settings(max_examples=30)
@given(sweeps(), st.data())
def test_every_table_file_and_answer_is_made_of_any_sweep(whole, data):
    names = [None, *dict.fromkeys(planned.case.mechanism for planned in whole.plan)]
    analysis = analyse(whole, data.draw(st.sampled_from(names)))
    tables = [*page.report_tables(analysis)]
    with patch.object(page, "saved", lambda *what: b""), patch.object(page, "drawn"):
        page.report_files(analysis, tables=tables)
    shown(page.headlines(analysis, tables), analysis, data.draw(st.integers(30, 200)))
    console.plain({"answers": asdict(analysis.answers), "rows": analysis.rows})
    stored = of(analysis)
    assert stored.answer()
    assert len(stored.cases) == len(whole.plan)
    repr(stored), stored.ratios()
    length = data.draw(st.sampled_from(whole.request.lengths))
    limit = data.draw(st.sampled_from([None, 1e5, 1e9]))
    advice = recommend(analysis, length, limit)
    assert all(recommended(*pair) for pair in recommendations(analysis, advice))
    shown([ranking(advice)], analysis, 100)


@settings(max_examples=6)
@given(sweeps(), st.data())
def test_any_two_sweeps_of_the_same_cases_are_compared(whole, data):
    runs = [run for run in whole.runs if data.draw(st.booleans())]
    pair = analyse(whole), analyse(replace(whole, runs=tuple(runs)))
    found = compare(*pair)
    shown([comparison.changes(found)], pair[0], 120)


@settings(max_examples=2)
@given(sweeps())
def test_every_figure_is_drawn_of_any_sweep(whole):
    analysis = analyse(whole)
    page.report_files(analysis, ("png",))


FURTHER = """
import sys
from dataclasses import replace
from attnbench.records import metrics

for join in metrics.Join:
    name = f"further_{join.name.lower()}"
    row = replace(metrics.TABLE["wall_s"], key=f"{name}_s", name=name, join=join,
                  table=True, figure=name, compared=True)
    metrics.ROWS += (row,)
metrics.TABLE = {row.key: row for row in metrics.ROWS}
metrics.DRAWN = tuple(row for row in metrics.ROWS if row.figure)
from attnbench.commands.main import run

sys.exit(run())
"""


@pytest.mark.long
def test_a_metric_that_no_stored_run_has_breaks_nothing(tmp_path):
    python("-c", FURTHER, "report", "reports/cpu-decode", "--out", tmp_path)
    python("-c", FURTHER, "compare", "reports/cpu-decode", "reports/cpu-decode")


def test_a_run_without_samples_has_no_time():
    whole = sweep(("fastformer", "transformer"), lengths=(128, 512))
    runs = tuple(replace(run, samples=()) for run in whole.runs)
    assert analyse(replace(whole, runs=runs)).cases[TIME].isna().all()
