"""The line of progress: what counts comes first, and only the end of the line is cut."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from attnbench.render.terminal import NARROW, WIDE, ProgressLine

LONG = "longformer:transformers[global_tokens=16,window=16], memory"


def shown(width: int, running: str = LONG, left_s: float = 4325.0) -> str:
    out = io.StringIO()
    line = ProgressLine(Console(file=out, width=width, force_terminal=True, color_system=None))
    line.show(running, "N=65,536 inference", 8, 240, left_s)
    plain = Console(file=out, width=width, color_system=None)
    out.truncate(0)
    plain.print(line.progress.get_renderable())
    return out.getvalue().strip("\x00").rstrip("\n")


@given(st.integers(40, 200))
def test_the_time_left_is_never_cut_and_the_line_is_one_line(width: int):
    text = shown(width)
    assert "\n" not in text
    assert len(text) <= width
    assert text.startswith("8/240 · 1 h 12 min left · longf")


def test_what_runs_is_shown_whole_where_it_fits():
    assert "· fastformer:folded N=65,536 inference" in shown(WIDE, "fastformer:folded")
    assert shown(50, "fastformer").endswith("…")


def test_elapsed_time_and_bar_appear_where_there_is_room():
    assert "0:00:00" not in shown(NARROW - 1)
    assert "0:00:00" in shown(NARROW)
    assert "╸" not in shown(WIDE - 1)
    assert "╸" in shown(WIDE)


def test_a_log_gets_one_line_for_each_stage():
    out = io.StringIO()
    with ProgressLine(Console(file=out, width=160)) as line:
        for stage in ("N=128 training", "N=256 training"):
            for name in ("fastformer", "\x1b[31mlinformer"):
                line.show(name, stage, 1, 4, 0.5)
    assert out.getvalue() == "".join(
        f"1/4 · almost done · {stage}\n" for stage in ("N=128 training", "N=256 training")
    )


def test_no_name_controls_the_terminal():
    assert "\x1b" not in shown(120, "\x1b[31mred")
