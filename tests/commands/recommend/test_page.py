"""What to choose at one length: a sentence for each mode, and a ranking."""

from attnbench.commands.recommend.page import ranking
from attnbench.records import Mode
from tests.commands.recommend.advised import LONGEST, advised, ended, over_budget, text
from tests.sweeps import sweep


def test_where_nothing_was_measured_it_says_so_and_what_is_predicted():
    whole = ended("fastformer", "linformer", "transformer")
    found = advised(whole, LONGEST)
    assert found["rank"].isna().all()
    said = "inference at 65,536: nothing that may be ranked was timed; not measured, but predict"
    assert text(whole, LONGEST).startswith(said)
    assert found["allocated_peak_bytes"].isna().all(), "nothing was measured"
    largest = found["predicted_bytes"].max()
    _, fitting = text(whole, LONGEST, largest - 1).split("predicted: ")
    assert "Fastformer " in fitting
    assert "Transformer" not in fitting
    nothing = text(whole, LONGEST, 1.0)
    assert nothing == "inference at 65,536: nothing that may be ranked was timed."
    table = ranking(found)
    times = [row[table.columns.index("Time, ms")] for row in table.rows]
    assert all(time.value > 0 and time.text.endswith(" predicted") for time in times)
    peaks = [row[table.columns.index("Peak, MiB")] for row in table.rows]
    assert all(peak.value > 0 and peak.text.endswith(" predicted") for peak in peaks)


def test_peaks_that_were_measured_are_not_called_predicted_and_have_their_mark():
    found = advised(sweep(("fastformer", "linformer"), modes=(Mode.INFERENCE,)), 512)
    column = ranking(found).columns.index("Peak, MiB")
    assert all(row[column].text.replace(".", "").isdigit() for row in ranking(found).rows)
    missed = ranking(found.assign(uncounted="arrays of numpy"))
    assert all(row[column].text.endswith(" m") for row in missed.rows)
    assert "“m” marks peaks that miss memory" in missed.note


def test_what_was_not_measured_and_may_be_faster_is_named_beside_what_was():
    def end(case):
        return over_budget(case) if case.mechanism == "fastformer" else None

    whole = sweep(("fastformer", "linformer"), modes=(Mode.INFERENCE,), end=end)
    found = advised(whole, LONGEST)
    assert found["rank"].isna().tolist() == [False, True]
    assert list(found["excluded"]) == ["", ""]
    said = (
        "inference at 65,536: Linformer alone, of those that may be ranked, was timed there; not"
        " measured, but predicted: Fastformer "
    )
    assert text(whole, LONGEST).startswith(said)
