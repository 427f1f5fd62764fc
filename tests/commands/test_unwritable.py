"""An output that cannot be written: one line that says why and what to do."""

import shutil
from pathlib import Path

import pytest

from tests.commands.commands import refused

STORED = Path(__file__).parents[1] / "data" / "small"
VERBS = {
    "sweep": ("sweep", "--models", "fnet", "--lengths", "16", "--out"),
    "shard": ("sweep", "--models", "fnet", "--lengths", "16", "--shard", "1/2", "--out"),
    "trace": ("sweep", "--models", "fnet", "--lengths", "16", "--trace", "fnet/training/16",
              "--out"),
    "resume": ("sweep", "--resume"),
    "report": ("report", STORED, "--out"),
    "merge": ("merge", STORED, "--out"),
    "save": ("check", "--models", "fnet", "--save"),
    "check": ("check", "--baseline", ".ci/baseline.json", "--formats", "bmf", "--out"),
}  # fmt: skip
PLACES = {
    "file/far/below": "; move the file that is in the way",
    "\udcff" * 300: "; choose a shorter name",
}
LONG = ("sweep", "shard", "trace")  # these start processes


@pytest.mark.parametrize(
    "verb", [pytest.param(v, marks=pytest.mark.long if v in LONG else ()) for v in VERBS]
)
def test_what_cannot_be_written_is_refused_in_one_line(verb, tmp_path):
    (tmp_path / "file").touch()
    for place, advice in PLACES.items():
        last = refused(*VERBS[verb], tmp_path / place)
        assert "no sweep in" in last if verb == "resume" else advice in last, last
        assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.long
def test_a_report_in_the_place_of_a_file_leaves_what_is_there(tmp_path):
    shutil.copy(STORED / "sweep.jsonl", tmp_path)
    (tmp_path / "fig2.png").mkdir()
    said = refused("report", tmp_path)
    assert "is a directory; name a file, not a folder; the journal is intact" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig2.png", "sweep.jsonl"]
