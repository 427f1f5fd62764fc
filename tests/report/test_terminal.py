"""The line of progress: what counts comes first, and only the end of the line is cut."""

import io
import math

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group

from attnbench.analysis.visits import TimedSeries
from attnbench.report.terminal import ProgressLine

LONG = "longformer:transformers[global_tokens=16,window=16], memory"


def shown(width: int, running: str = LONG, left_s: float = 4325.0) -> str:
    out = io.StringIO()
    times = iter([0.0, 100.0])
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    line = ProgressLine(console, clock=lambda: next(times))
    line.show(running, "N=65,536 inference", "8 runs", left_s)
    console.print(Group(line.display.get_renderable()))
    return out.getvalue().rstrip("\n")


@given(st.integers(40, 200))
def test_the_time_left_is_never_cut_and_the_line_is_one_line(width: int):
    text = shown(width)
    assert "\n" not in text
    assert len(text) <= width
    assert text.startswith("1 min 40 s of 1 h 13 min · 8 runs · l")


def test_what_runs_is_shown_whole_where_it_fits():
    assert shown(80, "fastformer:folded").endswith("· fastformer:folded N=65,536 inference")
    assert shown(50, "fastformer").endswith("…")


def test_a_log_gets_one_line_for_each_stage_in_which_something_was_done():
    out = io.StringIO()
    with ProgressLine(Console(file=out, width=160), clock=lambda: 0.0) as line:
        for counts, stage in (("0 runs", "N=128"), ("1 run", "N=256"), ("1 run", "N=512")):
            for name in ("fastformer", "\x1b[31mlinformer"):
                line.show(name, stage, counts, 0.5)
    lines = ("0 s, almost done · 0 runs · N=128", "0 s, almost done · 1 run · N=256")
    assert out.getvalue().splitlines() == [*lines]


TIMED = [
    TimedSeries("fastformer", 0.29, 0.0), TimedSeries("a", 0.3, math.log(1.04)),
    TimedSeries("transformer", 0.945, math.log(3.3)), TimedSeries("\x1b[1m", 2.0, None),
    TimedSeries("b", 3.0, None), TimedSeries("c", 3.0, None),
]  # fmt: skip


def test_first_times_are_one_line_that_stays():
    out = io.StringIO()
    console = Console(file=out, width=160, force_terminal=True, color_system=None)
    names = {each.series: each.series.capitalize() for each in TIMED}
    with ProgressLine(console, clock=lambda: 0.0) as line:
        line.first_times(TIMED, "N = 1,024 training", names)
        line.first_times([], "N = 2,048 training", names)
    assert (
        "N = 1,024 training   Fastformer 290 ms   A 300 ms   Transformer 945 ms, 3.3× slower"
        "   \\x1b[1m 2.00 s   … and 2 more\n"
    ) in out.getvalue()
    assert "2,048" not in out.getvalue()
