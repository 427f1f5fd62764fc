import numpy as np
import pytest

from attnbench.analysis.report import analyse
from attnbench.claims.bench import judge
from attnbench.claims.claim import Answer, Judgement, Number
from attnbench.claims.published import overlay, shipped, sources, table
from attnbench.metrics import Unit
from attnbench.render import delimited, markdown
from attnbench.render.claims import SHOWN, answers, counts, frame, listing, page, reasons, span
from attnbench.render.overlays import overlays
from tests.claims.claimed import LAB, LENGTHS, Truth, bench, measured


@pytest.fixture(scope="module")
def lab():
    return bench(measured())


@pytest.fixture(scope="module")
def judged(lab):
    return judge(lab, shipped())


def number(value, length=None, unit=Unit.RATIO, label="time of a over b", half=0.0):
    return Number(
        what=label, unit=unit, value=value, low=value - half, high=value + half, length=length
    )


def test_numbers_are_shown_with_interval_and_length():
    shown = Judgement(
        answer=Answer.CANNOT_TELL,
        why="the interval reaches both sides at 512",
        numbers=(number(1.1, 512, half=0.3), number(2.0, 1024), number(3.0, 2048), number(4.0)),
    )
    assert reasons(shown) == (
        "the interval reaches both sides at 512; "
        "time of a over b: 1.10× [0.800, 1.40] at 512, 2.00× at 1,024, 3.00× at 2,048; and 1 more"
    )
    assert SHOWN == 3


def test_lengths_and_exponents_have_fixed_digits():
    crossing = number(1399.6, unit=Unit.COUNT, label="length", half=100)
    slope = number(1.0, unit=Unit.EXPONENT, label="exponent", half=0.013)
    found = Judgement(answer=Answer.REPRODUCED, numbers=(crossing, slope))
    assert reasons(found) == "length: 1,400 [1,300, 1,500]; exponent: 1.00 [0.99, 1.01]"


def test_a_number_without_an_interval_has_no_brackets():
    bare = Number(what="time", unit=Unit.RATIO, value=2.0, length=512)
    assert reasons(Judgement(answer=Answer.CANNOT_TELL, numbers=(bare,))) == "time: 2.00× at 512"


@pytest.mark.parametrize(
    ("lengths", "text"), [((), "–"), ((4096,), "4,096"), ((512, 1024, 4096), "512 to 4,096 (3)")]
)
def test_the_lengths_behind_an_answer(lengths, text):
    assert span(Judgement(answer=Answer.REPRODUCED, lengths=lengths)) == text


def test_a_row_for_each_claim(judged):
    table = answers(judged)
    assert len(table.rows) == len(shipped())
    assert {row[1].text for row in table.rows} == {str(answer) for answer in Answer}
    assert all(row[3].text for row in table.rows)
    assert len(listing(shipped()).rows) == len(shipped())
    assert sum(int(part.split()[0]) for part in counts(judged).split(", ")) == len(judged)


def test_the_page_holds_every_claim_under_its_answer(lab, judged):
    text = page(analyse(lab.sweep), judged, ["claims_lra.png"]).decode()
    parts = text.split("\n## ")
    for one in judged:
        (section,) = [
            part for part in parts if part.startswith(one.judgement.answer.capitalize() + "\n")
        ]
        assert f"| {one.claim.id}: " in section
    assert "![claims_lra](claims_lra.png)" in text
    assert "- `crossover`: The length from which B takes less time than A" in text
    assert markdown.escape("N**2*d") in text


def test_csv_holds_all_numbers(judged):
    rows = frame(judged)
    assert len(rows) == len(judged)
    by_id = rows.set_index("id")
    row = by_id.loc["fastformer-fig2-inefficient-at-512"]
    assert row["answer"] == "reproduced"
    assert (row["from_len"], row["to_len"], row["lengths"]) == (128, 8192, 7)
    assert "time of fastformer:eager over transformer:eager" in row["numbers"]
    assert delimited.frame(rows).count(b"\n") == 1 + len(judged)


LRA_TIME, LRA_MEMORY, LINFORMER_TIME, _, FLASH_FORWARD, *_ = sources()


def ratio(curve, length, base):
    """How much higher a curve is at one length than at another."""
    (above,), (below,) = curve.at([length]).logs, curve.at([base]).logs
    return np.exp(above - below)


def test_curves_are_one_at_a_common_length(lab):
    found = overlay(lab, LRA_TIME)
    assert {panel.series for panel in found.panels} == {
        "transformer:eager",
        "linformer:eager[rank=128]",
        "linformer:eager[rank=256]",
        "bigbird:eager",
        "reformer:eager",
    }
    assert found.hardware == "4x4 TPU v3"
    eager = next(panel for panel in found.panels if panel.series == "transformer:eager")
    assert eager.at == 1024
    # steps per second are 8.1 at 1K and 1.4 at 4K
    published, measured = eager.published, eager.measured
    assert ratio(published, 4000, 1000) == pytest.approx(8.1 / 1.4)
    assert np.interp(1024, published.lengths, published.logs) == pytest.approx(0, abs=0.02)
    assert measured.at([1024]).logs == pytest.approx(0)
    truth = 4 * (1 + 4096 / 700) / (1 + 1024 / 700)
    assert ratio(measured, 4096, 1024) == pytest.approx(truth, rel=1e-6)
    assert (measured.low < measured.logs).all()


def test_values_that_may_be_slips_are_not_drawn():
    (panel,) = overlay(bench(measured({"synthesizer:eager": Truth()})), LRA_TIME).panels
    assert list(panel.published.lengths) == [1000, 2000, 4000]


def test_a_gain_is_relative_to_softmax_attention(lab):
    found = overlay(lab, LINFORMER_TIME)
    one = next(panel for panel in found.panels if "256" in panel.series)
    assert one.printed == "rank=256"
    growth = (1 + 8192 / 700) / (1 + 1024 / 700)
    assert ratio(one.measured, 8192, 1024) == pytest.approx(growth, rel=1e-6)
    assert found.title == "Speed-up over transformer:eager in inference"


def test_the_nearest_published_option_is_chosen():
    truths = {"transformer:eager": LAB["transformer:eager"], "linformer:eager[rank=400]": Truth()}
    (panel,) = overlay(bench(measured(truths)), LINFORMER_TIME).panels
    assert panel.printed == "rank=512"


def test_flash_is_laid_over_fused_kernels_alone(lab):
    found = {panel.series: panel for panel in overlay(lab, FLASH_FORWARD).panels}
    printed = table("flashattention_forward").query("mechanism == 'transformer'")
    for form, series in (("flash", "transformer:sdpa"), ("eager", "transformer:eager")):
        rows = printed[(printed["form"] == form) & printed["value"].notna()].set_index("length")
        expected = rows.loc[4096, "value"] / rows.loc[1024, "value"]
        assert ratio(found[series].published, 4096, 1024) == pytest.approx(expected)


def test_sweeps_that_share_nothing_have_no_overlay():
    alone = bench(measured({"fastformer:eager": Truth()}))
    assert overlay(alone, LRA_TIME) is None
    assert overlays(alone) == {}
    short = measured(LAB, lengths=(128, 256))
    assert overlay(bench(short), LRA_MEMORY) is None


def test_a_missing_softmax_leaves_gains_out():
    assert overlay(bench(measured({"linformer:eager[rank=128]": Truth()})), LINFORMER_TIME) is None


def test_a_figure_for_each_source():
    few = {series: LAB[series] for series in ("transformer:eager", "linformer:eager[rank=128]")}
    found = overlays(bench(measured(few)))
    assert set(found) == {f"claims_{source.figure}.png" for source in sources()}
    assert all(content.startswith(b"\x89PNG") for content in found.values())


def test_equal_sweeps_give_equal_figures():
    first, second = (overlays(bench(measured({"performer:eager": Truth()}))) for _ in range(2))
    assert first == second
    assert set(first) == {"claims_lra.png"}


def test_figures_come_in_other_formats_and_without_intervals():
    names = {"performer:eager": Truth(), "a_very_long_name_of_a_mechanism:eager": Truth()}
    found = overlays(bench(measured(names, rounds=1, lengths=LENGTHS[3:])), ("svg",))
    assert set(found) == {"claims_lra.svg"}


def test_a_panel_says_what_it_shows():
    found = overlay(bench(measured({"bigbird:eager": Truth()})), LRA_MEMORY)
    assert found.title == "Memory per sequence in training"
