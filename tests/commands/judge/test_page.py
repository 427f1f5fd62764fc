"""What is said of a user's function, and of its race with the mechanism's form."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from attnbench.analysis.report import analyse
from attnbench.commands.judge.judging import KernelQuestion, KernelVerdict
from attnbench.commands.judge.page import (
    Waiting,
    conclusions_of,
    crossovers,
    data,
    headline,
    lines,
    panel,
    ratios,
    sentences,
    speed_by_mode,
    speed_sentences,
    tried_text,
)
from attnbench.records import Aspect, Attempt, Kernel, KernelFinding, PanelRow, Selection
from attnbench.report import terminal
from tests.sweeps import sweep

LENGTHS = (512, 2048, 8192)
AT = r"\(N = 512, 2,048 and 8,192\)"
UNSURE = rf"Not known whether it is faster in training {AT}; --budget 4m may decide it\."
# mechanisms whose costs are not known to `tests.sweeps` cost the same
RACES = {
    ("performer", "nystromformer", 0.01): rf"As fast in training within [1-9] % {AT}\.",
    ("performer", "nystromformer", 0.1): UNSURE,
    ("fastformer", "linformer", 0.01): rf"Faster in training at every length that was raced {AT}\.",
    ("linformer", "fastformer", 0.01): rf"Slower in training at every length that was raced {AT}\.",
    ("longformer", "transformer", 0.01): (
        r"Faster in training from N = 1,\d+ \[512, 2,048\] to 8,192, of N = 512, 2,048 and 8,192\."
    ),
    ("transformer", "longformer", 0.01): (
        r"Faster in training up to N = 1,\d+ \[512, 2,048\], of N = 512, 2,048 and 8,192; then"
        r" slower\."
    ),
}


def raced(own, mechanism, noise, lengths=LENGTHS, **how):
    """The race of two series with known costs."""
    both = sweep((own, mechanism), lengths=lengths, noise=noise, restart=noise, **how)
    return analyse(both, mechanism)


@pytest.mark.parametrize(("own", "mechanism", "noise"), RACES)
def test_from_where_it_is_faster_is_said_of_each_mode(own, mechanism, noise):
    race = raced(own, mechanism, noise)
    training, _ = speed_by_mode(race, "--budget 4m")
    assert re.fullmatch(RACES[own, mechanism, noise], training), training
    assert [table.rows[0][0].text for table in ratios(race)] == [f"{own}:eager"] * 2
    kinds = {row["mode"]: row["answer"] for row in crossovers(race, "--budget 4m").values()}
    assert kinds["training"] == conclusions_of(race)["training"].answer


def test_without_intervals_nothing_is_called_as_fast():
    training, _ = speed_by_mode(raced("performer", "nystromformer", 0.01, rounds=1))
    assert re.fullmatch(UNSURE.replace("; --budget 4m may decide it", ""), training)


@pytest.mark.parametrize(
    ("own", "mechanism", "said"),
    [
        ("fastformer", "linformer", "Faster in training at N = 512 and 2,048; nothing is known of"),
        ("linformer", "fastformer", "Slower in training at N = 512 and 2,048; nothing is known of"),
    ],
)
def test_two_lengths_are_not_every_length(own, mechanism, said):
    training, _ = speed_by_mode(raced(own, mechanism, 0.01, LENGTHS[:2]), "--budget 4m")
    assert training.startswith(said), training


def test_lengths_that_only_one_of_both_reached_are_not_spoken_of():
    both = sweep(("fastformer", "linformer"), lengths=LENGTHS, noise=0.01, restart=0.01)
    lost = {p.case.key for p in both.plan if p.case.workload.seq_len == 8192}
    kept = tuple(run for run in both.runs if run.case not in lost or "fastformer" in run.case)
    training, _ = speed_by_mode(analyse(replace(both, runs=kept), "linformer"))
    assert training == (
        "Faster in training at N = 512 and 2,048, where both were timed; nothing is known of other"
        " lengths."
    )


def test_what_is_suspect_has_no_speed():
    race = raced("fastformer", "linformer", 0.01)
    shown = verdict(found(), STEADY, race=race, suspect="did its work only at first")
    assert [*speed_sentences(shown)] == [
        "Its times are compared with nothing: in the race it did its work only at first."
    ]


ATTEMPT = Attempt(
    aspect=Aspect.RIGHT,
    inputs="as usual",
    tokens=512,
    batch=2,
    width=256,
    heads=16,
    dtype="float32",
    causal=False,
)


def found(finding=KernelFinding.PASSED, reason="", **changes):
    """A row of an attempt with these changes."""
    compared = finding not in (KernelFinding.UNTRIED, KernelFinding.REFUSED)
    return PanelRow(
        attempt=replace(ATTEMPT, **changes),
        finding=finding,
        head_width=16,
        errors={"output": 1e-7, "dq": 1e-7} if compared else {},
        ours={"output": 1e-7},
        allowed={"output": 1e-5},
        worst="output" if compared else "",
        reason=reason,
    )


def verdict(*rows, **about):
    """A verdict on a function with these rows, which takes `causal`."""
    kernel = Kernel(
        form="f",
        options={"axes": "bhnd"},
        ways={"bhnd": 1e-7, "bnhd": 1.5},
        taken=("q", "k", "v"),
        untaken=(),
        modes=(False, True),
        mask="",
        width=256,
        heads=16,
        head_width=16,
        refused={},
        attempts=(),
    )
    question = KernelQuestion(
        function="kern.py:f",
        candidate=Selection(name="transformer:kern.py", form="f"),
        mechanism=Selection(name="transformer"),
    )
    about = {"dtype": "float32", "device": "cpu", "kernel": kernel, **about}
    return KernelVerdict(question=question, rows=rows, **about)


STEADY = found(aspect=Aspect.STEADY, inputs="zeros")


def test_a_verdict_names_the_lengths_of_each_mode():
    said = headline(verdict(found(tokens=1), found(), found(tokens=8192), STEADY))
    assert said == "f as transformer (float32, cpu): right (N = 1 to 8,192); steady (N = 512)."
    said = headline(verdict(found(tokens=8192), found(causal=True), STEADY))
    assert "right (not causal N = 8,192; causal N = 512)" in said


def test_a_verdict_names_how_far_gradients_were_compared():
    long = replace(found(tokens=8192), errors={"output": 1e-7})
    assert "right (N = 512 to 8,192; gradients to N = 512); steady" in headline(
        verdict(found(), long, STEADY)
    )
    masked = found(tokens=8192, masked=True, inputs="masked")
    assert "gradients to N = 512); steady" in headline(verdict(found(), long, masked, STEADY))
    assert "gradients to N = 512" in tried_text(verdict(found(), long, masked))
    forward = replace(found(), errors={"output": 1e-7})
    assert "right (N = 512 to 8,192); steady" in headline(verdict(forward, long, STEADY))


def test_what_is_wrong_is_named_with_its_sizes():
    said = headline(
        verdict(found(), found(KernelFinding.WRONG, "dk", causal=True, tokens=100), STEADY)
    )
    assert "NOT right (as usual, causal, at N = 100, d = 16: wrong: dk)" in said
    said = headline(verdict(found(KernelFinding.CHANGES_INPUTS, "q"), STEADY))
    assert "NOT right (as usual, at N = 512, d = 16: changes its inputs: q)" in said


def test_what_was_not_tried_is_not_right():
    shown = verdict(found(), found(KernelFinding.UNTRIED, "the budget ended", tokens=321), STEADY)
    assert not shown.sound
    assert not shown.faulty
    assert "as far as it was tried" in headline(shown)
    unfinished = "NOT FINISHED: 1 of 3 attempts were not made, so nothing is decided"
    assert f"{unfinished}." in sentences(shown)
    more = replace(shown, more_time="--budget 4m")
    assert f"{unfinished}; --budget 4m may decide it." in sentences(more)
    assert "NOT FINISHED" in next(lines(more))
    assert data(more)["decided_by"] == "--budget 4m"
    wrong = replace(more, rows=(*more.rows, found(KernelFinding.WRONG, "dk")))
    assert "NOT FINISHED" not in " ".join(sentences(wrong))
    assert "Not tried: as usual at N = 321 (the budget ended)." in sentences(shown)
    nothing = verdict(found(KernelFinding.UNTRIED, "the budget ended"), STEADY)
    assert "not known whether right" in headline(nothing)


def test_a_length_of_the_race_that_was_not_tried_is_only_named():
    untried = found(KernelFinding.UNTRIED, "it is long", tokens=8192, raced=True)
    shown = verdict(found(), found(raced=True), untried, STEADY)
    assert shown.sound
    assert "right (N = 512)" in headline(shown)
    assert "Not tried: as usual at N = 8,192 (it is long)." in sentences(shown)


def test_a_mask_with_which_every_call_raised_is_said():
    shown = verdict(found(), STEADY)
    shown = replace(shown, kernel=replace(shown.kernel, uncompared_mask="mask"))
    (called,) = (line for line in sentences(shown) if line.startswith("Called with"))
    assert "without mask, with which every call raised" in called


def test_what_is_suspect_is_not_sound_and_leads_the_verdict():
    shown = verdict(found(), STEADY, suspect="gave the same output for other input")
    assert not shown.sound
    said = headline(shown)
    assert "SUSPECT: in the race it gave the same output for other input; before that right" in said
    assert not data(shown)["sound"]
    assert not data(shown)["right"]


def test_without_any_length_of_the_race_it_is_not_finished():
    shown = verdict(
        found(), found(KernelFinding.UNTRIED, "it is long", tokens=8192, raced=True), STEADY
    )
    assert not shown.sound
    assert not shown.faulty


def test_what_fails_in_its_race_is_not_sound():
    shown = verdict(found(), STEADY, failed="training at N = 512: RuntimeError: no")
    assert shown.faulty
    assert "it FAILED in the race (training at N = 512: RuntimeError: no)" in headline(shown)


def test_an_error_is_a_line_of_its_own():
    question = verdict().question
    assert [*lines(KernelVerdict(question=question, error="it hangs"))] == ["kern.py:f: it hangs"]


def test_what_is_not_raced_has_no_speed():
    shown = verdict(found(), unraced="what is not right has no speed")
    assert [*speed_sentences(shown)] == ["Not raced: what is not right has no speed."]


def test_progress_is_said_after_five_seconds_and_then_seldom():
    now, told = [0.0], []

    class Line:
        def show(self, *text):
            told.append((now[0], text))

    waiting = Waiting(Line(), lambda: now[0])
    for second in range(31):
        now[0] = float(second)
        waiting.announce("trying f")
    assert [when for when, _ in told] == [5.0, 15.0, 25.0]


@pytest.mark.parametrize("columns", [60, 80])
def test_on_a_narrow_terminal_every_block_of_the_panel_tells_its_rows(columns):
    """Each has the inputs and the length; no line is wider, and no number is broken."""
    rows = (
        found(tokens=321),
        found(tokens=321, causal=True, heads=8, width=512),
        found(
            KernelFinding.WRONG, "output, a row, dq, …; its output is 1.5 times ours", tokens=4096
        ),
        found(inputs="keys 99.9 % alike and kept", causal=True),
        found(KernelFinding.UNTRIED, "it would take about 324 s", tokens=65_536),
    )
    screen = Console(width=columns, file=io.StringIO(), color_system=None)
    screen.print(terminal.table(panel(verdict(*rows)), columns))
    text = screen.file.getvalue()
    assert max(map(len, text.splitlines())) <= columns
    blocks = text.partition("Errors are against")[0].split("\n\n")
    assert len(blocks) > 1
    for block in blocks:
        for words in ("Inputs", "321", "4,096", "65,536"):
            assert words in block
    screen.print(terminal.prose(sentences(verdict(*rows)), columns))
    assert max(map(len, screen.file.getvalue().splitlines())) <= columns


def test_the_panel_has_a_column_for_its_verdicts():
    columns = panel(verdict(found())).columns
    assert columns == ("Inputs", "N", "Worst", "Error", "Ours", "Verdict", "B", "H", "d")


def test_of_nothing_that_was_tried_no_size_is_named():
    assert (
        tried_text(verdict(found(KernelFinding.UNTRIED, "the budget ended")))
        == "Nothing was tried."
    )
