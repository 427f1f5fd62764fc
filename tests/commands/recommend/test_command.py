"""`recommend` as a user meets it, on a stored sweep."""

import json
from pathlib import Path

import pytest

from attnbench.analysis import analyse
from attnbench.commands.recommend import command
from attnbench.records.storage.journal import load
from tests.commands.commands import here, refused

DATA = Path(__file__).parents[2] / "data" / "small"  # N = 512, 2,048 and 8,192


def recommended(*arguments, code=0):
    return here("recommend", DATA, *arguments, code=code)


def test_each_mode_is_answered_in_a_sentence_above_one_table():
    done = recommended("--length", "512")
    first, second, _, title, *_ = done.stdout.splitlines()
    assert first.startswith("inference at 512: Fastformer; Transformer needs ")
    assert first.endswith("] the time.")
    assert second.startswith("training at 512: Fastformer; ")
    assert title == "Ranking at N = 512"


def test_what_ran_out_of_memory_or_would_is_said():
    done = recommended("--length", "8k")
    assert "training at 8,192: Fastformer alone, of those that may be ranked, was" in done.stdout
    assert "can't allocate memory" in " ".join(done.stdout.split())
    done = recommended("--length", "512", "--memory", "1MiB", code=1)
    assert "training at 512: nothing that may be ranked was timed." in done.stdout
    assert "MiB, over 1.000 MiB" in done.stdout
    assert "are of one case, not of a whole language model" in done.stdout


def test_a_ranking_in_json_has_the_numbers():
    found = json.loads(recommended("--length", "512", "--memory", "1GiB", "--json").stdout)
    rows, conclusions = found["cases"], found["conclusions"]
    questions = [one["question"] for one in conclusions]
    assert questions == ["fastest"] * 2 + ["fits"] * 4
    first = conclusions[0]
    assert (first["answer"], first["basis"], first["scope"]["lengths"]) == (
        "winner",
        "measured",
        [512],
    )
    assert {row["seq_len"] for row in rows} == {512}
    ranks = [(row["series"], row["rank"]) for row in rows if row["mode"] == "inference"]
    assert ranks == [("fastformer:eager", 1), ("transformer:eager", 2)]
    assert rows[1]["low"] > 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--length", "1k"), "the sweep has no length 1024; it has 512, 2048, 8192"),
        (("--length", "x"), "--length 'x' is not a whole number; write 512"),
        (("--length", "100m"), "--length '100m' is not between 1 and 16,777,216"),
        (("--length", "512", "--memory", "much"), "write 8GiB or 512MiB"),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(arguments, message):
    assert message in refused("recommend", DATA, *arguments)


def test_a_limit_that_is_empty_is_refused():
    done = here("recommend", DATA, "--length", "512", "--memory", "", code=2)
    assert "--memory '' is not a size of memory" in done.stderr


def test_what_fits_and_may_not_be_ranked_is_no_failure(monkeypatch):
    """As times of a GPU that include launches, in every case of the length."""

    def analysed(folder):
        found = analyse(load(Path(folder)))
        found.__dict__["cases"] = found.cases.assign(shows_launches=True)
        return found

    monkeypatch.setattr(command, "analysed", analysed)
    assert "nothing that may be ranked" in recommended("--length", "512", "--memory", "1TiB").stdout
    recommended("--length", "512", "--memory", "1MiB", code=1)
