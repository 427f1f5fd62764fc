"""Sweeps of several devices side by side."""

from dataclasses import replace

import pytest

from attnbench.analysis.report import device_names, side_by_side
from attnbench.errors import DifferentSweep
from attnbench.records import Clock, Settings
from attnbench.render.cost_tables import timed_by
from attnbench.render.styles import labels, series_styles
from tests import sweeps

GPUS = ("NVIDIA A100", "NVIDIA H100")
FEW = {"lengths": (128, 512), "rounds": 2, "samples": 3}


def on(device, **changes):
    made = sweeps.sweep(
        ("fastformer", "transformer"), machine=sweeps.environment(device=device), **FEW
    )
    return replace(made, request=replace(made.request, **changes))


def test_series_are_named_after_their_devices():
    found = side_by_side([on(gpu) for gpu in GPUS])
    assert set(found["series"]) == {
        f"{name}:eager @ {gpu}" for name in ("fastformer", "transformer") for gpu in GPUS
    }
    assert len(found) == 2 * len(on(GPUS[0]).plan)


def test_equal_devices_are_numbered():
    assert device_names([on("cpu"), on(GPUS[0]), on("cpu")]) == ["cpu (1)", GPUS[0], "cpu (2)"]
    assert device_names([replace(on("cpu"), sessions=()), on("cpu")]) == ["unknown device", "cpu"]


@pytest.mark.parametrize("changes", [{"width": 512}, {"dtype": "bfloat16"}, {"causal": True}])
def test_other_models_do_not_belong_into_one_figure(changes):
    (name,) = changes
    with pytest.raises(DifferentSweep, match=rf"\({name}: .* and {changes[name]}\); report each"):
        side_by_side([on(GPUS[0]), on(GPUS[1], **changes)])


def test_tokens_lengths_and_seeds_may_differ():
    assert len(side_by_side([on(GPUS[0]), on(GPUS[1], tokens=131072, lengths=(128,))]))


def test_times_are_of_the_tokens_of_the_first_sweep():
    found = side_by_side([on(GPUS[0], tokens=4096), on(GPUS[1])])
    assert set(found["batch_scale"] * found["tokens"]) == {4096}


def test_each_sweep_keeps_its_clock():
    settings = Settings(clock=Clock.CPU, threads=1)
    one, other = on(GPUS[0], settings=settings), on(GPUS[1])
    assert timed_by(side_by_side([one, one])) == "CPU time on one core"
    assert timed_by(side_by_side([one, other])) == timed_by(side_by_side([other, one])) == "time"


def test_labels_have_the_device_on_a_second_line_and_styles_differ_by_it():
    names = [
        f"{series} @ {gpu}" for gpu in GPUS for series in ("linformer:eager[rank=16]", "x.py:Y")
    ]
    assert list(labels(names).values()) == [
        *("Linformer\nNVIDIA A100", "Y\nNVIDIA A100"),
        *("Linformer\nNVIDIA H100", "Y\nNVIDIA H100"),
    ]
    styles = series_styles(names)
    assert styles[names[0]]["color"] == styles[names[2]]["color"] != styles[names[1]]["color"]
    assert styles[names[0]]["linestyle"] != styles[names[2]]["linestyle"]
