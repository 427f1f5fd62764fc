"""Sweeps from Python, without a kernel: what is read, and what is refused."""

import io
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.console import Console

import attnbench
from attnbench.commands import notebook as sweeps
from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.folder import Fleet
from attnbench.devices.kinds.cpu import Cpu
from attnbench.errors import (
    AttnbenchError,
    CannotRun,
    SweepExists,
    UnknownMechanism,
    UsageError,
)
from attnbench.records import EngineKind
from attnbench.records.storage.journal import load as stored
from attnbench.report import terminal as terminals
from attnbench.running.sweep import Progress
from tests.commands.commands import python, soon
from tests.records.storage.recorded import CROSSED
from tests.sweeps import decoded

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "gpu"
FIG2 = ROOT / "reports" / "cpu-fig2"
SMALL = {
    "models": ["fastformer", "transformer"],
    "lengths": [16, 32],
    "tokens": 64,
    "width": 32,
    "heads": 2,
    "mode": "inference",
    "quick": True,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def sweep():
    return attnbench.load(FOLDER)


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import attnbench, sys; dir(attnbench);"
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'pandas', 'rich', 'typer')))"
    )
    python("-c", code, cwd=ROOT)
    assert {"sweep", "load"} <= set(dir(attnbench))
    with pytest.raises(AttributeError, match="no attribute 'sweeps'"):
        attnbench.sweeps  # noqa: B018


def test_a_script_that_sweeps_as_it_is_imported_is_refused_at_once(tmp_path):
    (tmp_path / "bench.py").write_text(
        "import attnbench\nfrom torch import nn\n\n\nclass Mean(nn.Linear):\n"
        "    def __init__(self, width, heads):\n        super().__init__(width, width)\n\n\n"
        "attnbench.sweep(models=['fastformer', Mean], lengths=[16], budget='20s')\n"
    )
    done = subprocess.run(
        [sys.executable, "bench.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert 'put the call below if __name__ == "__main__":' in done.stderr


def test_where_a_fleet_has_begun_nothing_is_measured(tmp_path):
    fleets.write(tmp_path, Fleet(engine=EngineKind.SLURM, shards=4))
    with pytest.raises(SweepExists, match="--resume to continue it, --out for another folder"):
        attnbench.sweep(**SMALL, out=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [fleets.FILE]


def test_a_sweep_is_measured_without_a_word(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(Cpu, "sampling", soon)
    seen = []
    measured = attnbench.sweep(**SMALL, out=tmp_path / "measured", progress=seen.append)
    assert capfd.readouterr() == ("", "")
    assert (seen[0].done, seen[-1].done) == (0, 4)
    for shown in (measured, attnbench.load(tmp_path / "measured")):
        assert list(shown.cases["outcome"]) == ["ok"] * 4
        assert "4 of 4 cases measured" in repr(shown)
        assert "Fastformer" in shown._repr_markdown_()
    assert len(measured.ratios("transformer")) == 2


def test_progress_is_shown_where_somebody_watches(monkeypatch, tmp_path):
    progress = Progress(
        running="fastformer", mode="training", seq_len=512, done=1, round=0, left_s=9.0
    )

    def no_server(*what):
        return nullcontext()

    def no_plan(*what):
        return None

    def measure(*what, observe, **how):
        observe(progress)
        raise CannotRun("that is enough")

    monkeypatch.setattr("attnbench.running.session.measure", measure)
    monkeypatch.setattr(sweeps, "plan", no_plan)
    monkeypatch.setattr(sweeps, "measuring_server", no_server)
    for asked, terminal in ((True, False), (False, True), (True, True)):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
        monkeypatch.setattr(terminals, "Console", lambda console=console, **how: console)
        with pytest.raises(CannotRun):
            attnbench.sweep(out=tmp_path / "out", progress=asked, device="cpu")
        assert ("fastformer" in console.file.getvalue()) == (asked and terminal)


def test_a_sweep_says_what_it_found():
    """Of several sizes, all in one table for each mode."""
    sweep = attnbench.load(CROSSED)
    assert sweep.answer().startswith("- Fastest")
    assert sweep.answer()._repr_markdown_() == repr(sweep.answer())
    modes = sweep.cases["mode"].nunique()
    assert sweep.answer().count("## The answer in ") == modes
    assert not {"key", "match"} & set(sweep.cases)
    assert len(sweep.cases) == len(stored(CROSSED).plan)
    assert len(sweep.ratios())
    assert sweep.plot().content


def test_a_stored_sweep_has_its_cases_and_ratios(sweep):
    assert len(sweep.cases) == len(stored(FOLDER).plan)
    assert {"series", "mode", "seq_len", "time_s", "outcome"} <= set(sweep.cases)
    ratios = sweep.ratios()
    assert {"series", "mode", "seq_len", "ratio", "low", "high", "paired"} <= set(ratios)
    name = sweep.cases["series"].iloc[0]
    assert name not in set(sweep.ratios(against=name)["series"])
    with pytest.raises(UnknownMechanism, match="linfromer"):
        sweep.ratios(against="linfromer")


def test_steps_have_no_chart_of_memory(monkeypatch):
    made = decoded({"transformer": lambda n: 2048 * n}, lengths=(128, 512))
    monkeypatch.setattr("attnbench.records.storage.load_results", lambda folder: made)
    steps = attnbench.load(FOLDER)
    assert steps.plot().content
    with pytest.raises(UsageError, match="decoding has no chart of memory"):
        steps.plot("memory")


def test_a_chart_is_a_file_of_its_kind(sweep, tmp_path):
    svg, png = sweep.plot(), sweep.plot("memory", "png")
    assert (svg._repr_png_(), png._repr_svg_()) == (None, None)
    assert svg._repr_svg_().lstrip().startswith("<?xml")
    png.save(tmp_path / "memory.png")
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")
    assert sweep.plot(suffix="pdf").content.startswith(b"%PDF")
    for arguments in (("speed",), ("time", "gif")):
        with pytest.raises(UsageError, match="is not one of"):
            sweep.plot(*arguments)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lenghts": [128]}, "unknown option"),
        ({"models": ["linfromer"]}, "unknown mechanism 'linfromer'"),
        ({"lengths": [0]}, "not between 1 and"),
        ({"quick": 1}, "--quick is true or false"),
        ({"on": "slurm"}, "on has no effect here; it is for the command line"),
        ({"out": FOLDER, "device": "cpu"}, "already holds a sweep"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_a_process_is_started(
    options, said, tmp_path, monkeypatch
):
    monkeypatch.setattr("attnbench.running.session.Pool", None)
    with pytest.raises(AttnbenchError, match=said):
        attnbench.sweep(**{"out": tmp_path / "out"} | options)
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_where_one_series_is_faster_than_another_is_a_frame():
    sweep = attnbench.load(FIG2)
    every, some = sweep.crossovers(), sweep.crossovers("linformer")
    assert {*some["other"]} == {"linformer[rank=16]"}
    assert len(some) < len(every)
    row = every.set_index(["mode", "series", "other"]).loc["training"]
    one = row.loc[("longformer[global_tokens=16,window=16]", "transformer:sdpa")]
    assert (one["answer"], one["low"], one["high"]) == ("from", 256, 512)
    assert (one["from_len"], one["to_len"], one["lengths"]) == (128, 8192, 7)
    assert "Compared with Linformer" in sweep.answer(against="linformer")


def test_conclusions_and_exponents_are_frames_with_their_scopes():
    sweep = attnbench.load(FIG2)
    every, some = sweep.conclusions(), sweep.exponents()
    assert {*some["question"]} == {"exponent"}
    assert {"fastest", "faster from", "limit of length"} <= {*every["question"]}
    chosen = some[(some["mode"] == "training") & (some["quantity"] == "time_s")]
    by_series = {names[0]: row for names, row in zip(chosen["series"], chosen.iloc, strict=True)}
    row = by_series["transformer:sdpa"]
    assert row["low"] < row["value"] < row["high"]
    assert row["lengths"][-1] == 8192
    assert row["of_sweep"][-1] == 65_536
    lost = every[(every["question"] == "fastest") & (every["mode"] == "training")].iloc[-1]
    assert "transformer:sdpa" in lost["left_out"]
    assert lost["decided_by"].startswith("--")


def test_a_class_in_place_of_a_name_is_answered_with_the_way_out():
    class Mean:
        pass

    with pytest.raises(UsageError, match=r"%%writefile mine.py, and name it 'mine.py:Mean'"):
        attnbench.sweep(models=[Mean])
