"""Sweeps from Python, without a kernel: what is read, and what is refused."""

import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import attnbench
from attnbench.errors import AttnbenchError, SweepExists, UnknownMechanism, UsageError
from attnbench.store.journal import load as stored

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "schema3"


@pytest.fixture(scope="module")
def sweep():
    return attnbench.load(FOLDER)


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import attnbench, sys; attnbench.sweep; attnbench.load;"
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'pandas', 'rich', 'typer')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_stored_sweep_has_its_cases_ratios_and_crossovers(sweep):
    assert len(sweep.cases) == len(stored(FOLDER).plan)
    assert {"series", "mode", "seq_len", "time_s", "outcome"} <= set(sweep.cases)
    ratios = sweep.ratios()
    assert {"series", "mode", "seq_len", "ratio", "low", "high", "paired"} <= set(ratios)
    name = sweep.cases["series"].iloc[0]
    assert name not in set(sweep.ratios(against=name)["series"])
    pairs = sweep.crossovers(against=name)[["series", "other"]].to_numpy()
    assert all(name in pair for pair in pairs)
    with pytest.raises(UnknownMechanism, match="linfromer"):
        sweep.ratios(against="linfromer")


def test_it_shows_itself_as_tables_and_a_chart(sweep):
    page = unescape(sweep._repr_html_().replace("<wbr>", ""))
    assert "<script" not in page
    assert page.count("<table") == sweep.cases["mode"].nunique()
    assert page.count('src="data:image/png;base64,') == 1
    assert all(series.split(":")[0] in page for series in sweep.cases["series"])
    assert repr(sweep).endswith("cases measured)")
    assert all(line in page for line in sweep.warnings)


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
        ({"lenghts": [128]}, "unknown option 'lenghts'; did you mean lengths"),
        ({"models": ["linfromer"]}, "unknown mechanism 'linfromer'"),
        ({"lengths": [0]}, "not between 1 and"),
        ({"quick": 1}, "--quick is true or false"),
        ({"on": "slurm"}, "on has no effect here; it is for the command line"),
        ({"formats": "pdf"}, "formats has no effect here"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_a_process_is_started(
    options, said, tmp_path, monkeypatch
):
    monkeypatch.setattr("attnbench.api.servers.Server", None)
    with pytest.raises(AttnbenchError, match=said):
        attnbench.sweep(out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_a_sweep_is_kept():
    with pytest.raises(SweepExists, match="already holds a sweep"):
        attnbench.sweep(out=FOLDER, models=["fastformer"])


def test_a_folder_without_a_sweep_is_refused_at_once(tmp_path):
    with pytest.raises(AttnbenchError):
        attnbench.load(tmp_path)
