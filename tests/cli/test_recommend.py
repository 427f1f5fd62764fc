"""`attnbench recommend` as a user meets it, on a stored sweep; nothing is measured."""

import json
import re
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
    done = recommended("--length", "1k")
    assert [line for line in done.stdout.splitlines() if line.startswith("At N")] == [
        line for line in done.stdout.splitlines() if line.startswith("At N = 1,024 in ")
    ]
    assert "in inference" in done.stdout
    assert "in training" in done.stdout
    assert "interpolated, 512 to 2,048" in done.stdout


def test_what_ran_out_of_memory_or_would_is_said():
    done = recommended("--length", "8k", "--mode", "training")
    assert "the only series that was measured" in done.stdout
    assert "Transformer" in done.stdout
    done = recommended("--length", "512", "--mode", "training", "--memory", "1MiB", code=1)
    assert "no measured series fits into 1.000 MiB." in done.stdout
    # what no row has is in no column, in no title and in no note
    assert "Excluded at N = 512, training; Reason: needs more than 1.000 MiB\n" in done.stdout
    assert "Mechanism    Peak, MiB\n" in done.stdout
    assert done.stdout.rstrip().endswith("Peak memory is that of the sweep's batch.")
    assert not re.search("rank|time|interval", done.stdout.lower())


def test_json_has_the_numbers():
    (found,) = json.loads(recommended("--length", "512", "--mode", "inference", "--json").stdout)
    assert (found["seq_len"], found["mode"]) == (512, "inference")
    ranks = [(choice["series"], choice["rank"]) for choice in found["choices"]]
    assert ranks == [("fastformer:eager", 1), ("transformer:eager", 2)]
    assert found["choices"][1]["margin"]["low"] > 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--length", "100"), "the nearest is 512, and attnbench sweep --lengths 100 measures it"),
        (("--length", "x"), "--length 'x' is not a size; write 65536 or 64k"),
        (("--length", "100m"), "--length '100m' is not between 1 and 16,777,216"),
        (("--length", "512", "--mode", "both,x"), "is not training, inference, decode or both"),
        (("--length", "512", "--memory", "much"), "write 8GiB or 512MiB"),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(arguments, message):
    assert message in refused("recommend", DATA, *arguments)
