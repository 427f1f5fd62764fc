"""`attnbench recommend` as a user meets it, on a stored sweep; nothing is measured."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import here, refused

DATA = Path(__file__).parents[1] / "data" / "small"  # N = 512, 2,048 and 8,192


def recommended(*arguments, code=0):
    return here("recommend", DATA, *arguments, code=code)


def test_a_measured_length_is_answered_in_a_sentence_and_a_table():
    done = recommended("--length", "512", "--mode", "inference")
    first, _, title, *_ = done.stdout.splitlines()
    assert first.startswith("At N = 512 in inference: Fastformer, ")
    assert first.endswith("] as fast as Transformer.")
    assert title.startswith("Ranking at N = 512, inference")


def test_without_a_mode_each_is_answered():
    lines = recommended("--length", "2k").stdout.splitlines()
    assert [line for line in lines if line.startswith("At N = 2,048 in inference: ")]
    assert [line for line in lines if line.startswith("At N = 2,048 in training: ")]


def test_what_ran_out_of_memory_or_would_is_said():
    done = recommended("--length", "8k", "--mode", "training")
    assert "the only one that was measured" in done.stdout
    assert "Transformer" in done.stdout
    done = recommended("--length", "512", "--mode", "training", "--memory", "1MiB", code=1)
    assert "nothing that fits into 1.000 MiB was measured." in done.stdout
    assert "needs more than 1.000 MiB" in done.stdout
    assert "the model of this sweep with a batch of 16: not of a whole language" in done.stdout


def test_json_has_the_numbers():
    rows = json.loads(recommended("--length", "512", "--mode", "inference", "--json").stdout)
    assert {(row["seq_len"], row["mode"]) for row in rows} == {(512, "inference")}
    ranks = [(row["series"], row["rank"]) for row in rows]
    assert ranks == [("fastformer:eager", 1), ("transformer:eager", 2)]
    assert rows[1]["low"] > 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--length", "1k"), "--length 1024: the sweep has 512, 2048, 8192 in inference;"),
        (("--length", "x"), "--length 'x' is not a size; write 65536 or 64k"),
        (("--length", "100m"), "--length '100m' is not between 1 and 16,777,216"),
        (("--length", "512", "--mode", "both,x"), "is not training, inference, decode or both"),
        (("--length", "512", "--memory", "much"), "write 8GiB or 512MiB"),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(arguments, message):
    assert message in refused("recommend", DATA, *arguments)
