"""`attnbench claims` as a user meets it; in this process, on a stored sweep."""

import contextlib
import csv
import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from attnbench.claims.published import shipped
from attnbench.store.journal import load
from tests.claims.claimed import bench
from tests.cli.commands import here, refused

DATA = Path(__file__).parents[1] / "data" / "small"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return shutil.copytree(DATA, tmp_path_factory.mktemp("claims") / "größe und zeit")


@pytest.fixture(scope="module")
def done(folder):
    return here("claims", folder)


def test_without_a_sweep_the_claims_are_listed():
    found = here("claims")
    papers = {claim.source.partition(",")[0] for claim in shipped()}
    assert f"{len(shipped())} claims from {len(papers)} sources" in found.stdout
    assert "crossover(transformer:eager" in found.stdout
    assert "attnbench sweep --models" in found.stdout
    assert "transformer:eager,transformer:sdpa" in found.stdout
    assert "out of scope: hyena, mamba" in found.stdout


def test_the_list_comes_as_json():
    rows = json.loads(here("claims", "--json", "--only", "mamba*").stdout)
    assert [row["id"] for row in rows] == ["mamba-crossover-flash", "mamba2-crossover-flash"]
    assert rows[0]["check"].startswith("crossover(transformer:flash; mamba): <= 2048 and ratio(")


def test_a_sweep_is_judged_and_its_folder_filled(folder, done):
    assert f"{len(shipped())} claims: " in done.stdout
    assert "--all shows those out of scope" in done.stdout
    assert "claims.md, claims.csv" in done.stderr
    lines = (folder / "claims.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(lines))
    assert len(rows) == len(shipped())
    words = {"reproduced", "not reproduced", "cannot tell", "out of scope"}
    assert {row["answer"] for row in rows} <= words
    page = (folder / "claims.md").read_text(encoding="utf-8")
    for row in rows:
        assert row["id"] in page


def test_only_what_is_asked_is_shown_but_all_is_written(folder, done):
    for path in folder.glob("claims*"):
        path.unlink()
    only = ("--only", "*table?-transformer")
    found = here("claims", folder, *only, "--json", "--formats", "svg")
    rows = json.loads(found.stdout)
    assert [row["id"] for row in rows] == [
        "fastformer-table7-transformer",
        "smartbird-table5-transformer",
    ]
    for row in rows:
        assert set(row) >= {"answer", "why", "numbers", "lengths", "claim", "check", "scope"}
        assert all(set(number) >= {"what", "value", "low", "high"} for number in row["numbers"])
    assert len((folder / "claims.csv").read_bytes().splitlines()) == 1 + len(shipped())
    assert not list(folder.glob("claims_*.png"))


def test_what_is_out_of_scope_is_shown_when_asked():
    from attnbench.claims.bench import judge
    from attnbench.claims.published import shipped
    from attnbench.cli.claims import show

    found = judge(bench(load(DATA)), shipped())
    for everything, hint in ((True, 0), (False, 1)):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            show(found, everything)
        assert text.getvalue().count("--all shows those out of scope") == hint
        assert ("mamba2-crossover-flash" in text.getvalue()) is everything


def test_a_sweep_is_summarised_once(folder, monkeypatch):
    from attnbench.analysis import summary

    calls = []
    whole = summary.summary
    monkeypatch.setattr(summary, "summary", lambda sweep: calls.append(1) or whole(sweep))
    here("claims", folder)
    assert len(calls) == 1


MINE = """id,claim,source,predicate,a,b,quantity,mode,lengths
mine,Fastformer is faster.,Me,less,fastformer,transformer,time,inference,>= 128
other,The Transformer runs out.,Me,oom,transformer,,,training,1024
"""


def test_claims_of_ones_own_are_judged(folder, tmp_path):
    file = tmp_path / "meine Behauptungen.csv"
    file.write_text(MINE, encoding="utf-8-sig")
    rows = json.loads(here("claims", folder, "--claims", file, "--json").stdout)
    assert [row["id"] for row in rows] == ["mine", "other"]
    assert rows[0]["answer"] != "out of scope"
    assert len((folder / "claims.csv").read_bytes().splitlines()) == 3
    listed = here("claims", "--claims", file, "--only", "mine").stdout
    assert "1 claim from 1 source." in listed


def test_rows_that_cannot_be_read_are_named_one_by_one(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text(MINE.replace("less", "quicker"))
    said = "mine.csv, line 2, column predicate: 'quicker'; expect"
    assert said in refused("claims", "--claims", file)
    file.write_text(MINE.replace("oom", "\x1b[2J") * 30)
    ended = here("claims", "--claims", file, code=2)
    lines = ended.stderr.splitlines()
    assert lines[0].startswith(f"{file}, line 3, column predicate: ")
    assert len(lines) == 21
    assert lines[-1].endswith("88 rows cannot be read; correct them")
    assert "\x1b" not in ended.stderr


def test_a_file_in_the_place_of_the_answers_is_not_overwritten(tmp_path):
    folder = shutil.copytree(DATA, tmp_path / "copy")
    (folder / "claims.csv").write_text(MINE)
    said = refused("claims", folder, "--claims", folder / "claims.csv")
    assert re.search("the answers would overwrite .*; give it another", said)
    assert (folder / "claims.csv").read_text() == MINE


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "zzz"), "no claim has the id or mechanism 'zzz'"),
        (("--formats", "gif"), "figures come as png"),
        (("--claims", "nowhere.csv"), "cannot read the claims of 'nowhere.csv': No such"),
        (("--claims", "."), "cannot read the claims of '.': Is a directory"),
        (("--claims", sys.executable), "it is not UTF-8 text|is larger than"),
        (("nowhere",), "no sweep in 'nowhere'"),
    ],
)
def test_bad_usage_is_one_line(arguments, words):
    assert re.search(words, refused("claims", *arguments))


def test_a_folder_that_cannot_be_written_is_reported(tmp_path):
    folder = shutil.copytree(DATA, tmp_path / "copy")
    (folder / "claims.csv").mkdir()
    said = refused("claims", folder)
    assert re.search("cannot write .*claims.csv.*the journal is intact", said)
