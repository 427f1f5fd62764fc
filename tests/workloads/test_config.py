"""The command that a report says a sweep was measured with."""

from dataclasses import replace

import pytest

from attnbench.workloads.config import command
from attnbench.workloads.options import Options
from attnbench.workloads.requests import request


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ({}, ""),
        (
            {"models": "transformer,linear_transformer", "lengths": "128,300", "budget": "90s"},
            " --models transformer,linear_transformer --lengths 128,300 --budget 90s",
        ),
        (
            {"lengths": "512,1k,2k", "mode": "decode", "fill": False, "budget": "none"},
            " --lengths 512..2048:x2 --mode decode --no-fill --budget none --rounds 3",
        ),
        (
            {"width": "64,128", "causal": True, "models": "linformer[rank=4]", "seed": "7"},
            " --models 'linformer[rank=4]' --causal --width 64,128 --seed 7",
        ),
        ({"quick": True, "rounds": "2"}, " --rounds 2 --quick"),
        (
            {"budget": "1234567s", "precision": "1.234567%"},
            " --budget 1234567s --precision 1.234567%",
        ),
    ],
)
def test_the_command_asks_for_the_same_again(options, written):
    asked = request(Options(device="cpu", **options))
    assert command(asked) == f"attnbench sweep{written}"


def test_a_preset_that_is_unknown_here_is_no_error():
    asked = replace(request(Options(device="cpu")), preset="of-later")
    assert "--preset of-later" in command(asked)
