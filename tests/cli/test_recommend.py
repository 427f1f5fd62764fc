"""`attnbench recommend` as a user meets it, on a stored sweep; nothing is measured."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import here, refused

DATA = Path(__file__).parents[1] / "data" / "small"  # N = 512, 2,048 and 8,192


def recommended(*arguments, code=0):
    return here("recommend", DATA, *arguments, code=code)


def test_each_mode_is_answered_in_a_sentence_above_one_table():
    done = recommended("--length", "512")
    first, second, _, title, *_ = done.stdout.splitlines()
    assert first.startswith("inference: Fastformer, ")
    assert first.endswith("] as fast as Transformer.")
    assert second.startswith("training: Fastformer, ")
    assert title == "Ranking at N = 512"


def test_what_ran_out_of_memory_or_would_is_said():
    done = recommended("--length", "8k")
    assert "training: Fastformer.\n" in done.stdout
    assert "can't allocate memory" in done.stdout
    done = recommended("--length", "512", "--memory", "1MiB", code=1)
    assert "training: nothing that fits was measured." in done.stdout
    assert "not known to fit into 1.000 MiB" in done.stdout
    assert "are of one case, not of a whole language model" in done.stdout


def test_json_has_the_numbers():
    rows = json.loads(recommended("--length", "512", "--json").stdout)
    assert {row["seq_len"] for row in rows} == {512}
    ranks = [(row["series"], row["rank"]) for row in rows if row["mode"] == "inference"]
    assert ranks == [("fastformer:eager", 1), ("transformer:eager", 2)]
    assert rows[1]["low"] > 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--length", "1k"), "the sweep has no length 1024; it has 512, 2048, 8192"),
        (("--length", "x"), "--length 'x' is not a size; write 65536 or 64k"),
        (("--length", "100m"), "--length '100m' is not between 1 and 16,777,216"),
        (("--length", "512", "--memory", "much"), "write 8GiB or 512MiB"),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(arguments, message):
    assert message in refused("recommend", DATA, *arguments)
