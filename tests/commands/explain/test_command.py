"""`explain`: times and counts of two mechanisms at each level, from the command line."""

import json

import pytest

from tests.commands.commands import here, refused


@pytest.mark.long
def test_a_difference_is_explained_within_the_budget():
    small = ("--length", 16, "--width", 16, "--budget", "30s")
    data = json.loads(here("explain", "gated_delta_net", "transformer", *small, "--json").stdout)
    assert data["text"][0].startswith("At level model, gated_delta_net:chunked takes ")
    assert [level["level"] for level in data["levels"]] == ["core", "attention", "model"]


def seldom(*arguments, said):
    """Arguments whose refusal needs the cards of mechanisms, which takes seconds to read."""
    return pytest.param(arguments, said, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fnet", "local", "--length", 0), "not between 1 and"),
        (("fnet", "local", "--length", "x"), "not a whole number"),
        (("fnet", "local"), "--length"),
        (("fnet", "--length", 16), "B"),
        (("fnet", "lokal", "--length", 16), "did you mean"),
        (("fnet", "@fig2", "--length", 16), "compares two cases"),
        seldom("fnet", "transformer:*", "--length", 16, said="compares two cases"),
        seldom("fnet", "fnet", "--length", 16, said="compares two cases"),
        (("fnet", "local", "--length", 16, "--mode", "both"), "one mode"),
        seldom("fnet", "local", "--length", 16, "--width", "16,32", said="compares two cases"),
        (("fnet", "local", "--length", 16, "--quick"), "explain takes no --quick"),
        (("--width", 16, "fnet", "lokal", "--length", 16), "did you mean"),
        (("fnet", "local", "axial", "--length", 16), "explain takes A and B: 'axial' is too much"),
        seldom("fnet", "local", "--length", 16, "--causal", said="fnet"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_one_line(arguments, said):
    assert said in refused("explain", *arguments)


def test_help_offers_nothing_that_is_refused():
    text = here("explain", "--help").stdout
    assert not [word for word in ("both", "crossed", "--level", "[,N") if word in text]
