"""From options to a request: what is chosen, what has no effect, and files of options."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.devices import find
from attnbench.errors import UsageError
from attnbench.records import Clock
from attnbench.running.request import requests
from attnbench.running.request.options import read
from attnbench.running.request.requests import from_toml, request, resumed_request, to_toml


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("lenghts = 5", "unknown option 'lenghts'; did you mean lengths"),
        ("[sweep]\nlengths = 5", "unknown option 'sweep'"),
        ("lengths = {a = 1}", r"--lengths is text, a number or a list of them, not \{"),
        ("width = true", "--width is text, a number or a list of them, not True"),
        ("causal = 'yes'", "--causal is true or false, not 'yes'"),
        ("lengths = ", "Invalid value"),
        ("x = " + "[" * 5000, "recursion"),
    ],
    ids=lambda value: value[:20],
)
def test_a_file_that_cannot_be_used_is_named_with_its_key(tmp_path, content, words):
    file = tmp_path / "mine.toml"
    file.write_text(content)
    with pytest.raises(UsageError, match=rf"(?s)--config '.*mine\.toml'.*{words}") as caught:
        from_toml(file)
    assert len(str(caught.value).splitlines()) == 1


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbfwidth = 64\n")
    assert from_toml(tmp_path / "mine.toml") == {"width": (64,)}
    with pytest.raises(UsageError, match=r"cannot read --config '.*': Is a directory"):
        from_toml(tmp_path)


def test_every_combination_of_sizes_is_asked_for():
    asked = request(read({"width": [64, 128], "heads": 2, "dtype": "fp32,bf16", "batch": 4}))
    assert [(v.width, v.dtype, v.batch) for v in asked.sizes] == [
        (64, "float32", 4),
        (64, "bfloat16", 4),
        (128, "float32", 4),
        (128, "bfloat16", 4),
    ]
    assert (asked.width, asked.dtype, asked.batch) == (64, "float32", 4)


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, {"threads": 1, "clock": Clock.CPU, "cold": False, "fill": None, "budget_s": 300.0}),
        ({"threads": 1}, {"clock": Clock.CPU}),
        ({"threads": 3}, {"threads": 3, "clock": Clock.WALL}),
        ({"device": "cuda"}, {"threads": 7, "clock": Clock.WALL, "faulting_s": 0.0, "cold": False}),
        # the driver reserves far more addresses than there is memory
        ({"device": "cuda"}, {"memory_limit_bytes": None}),
        ({"device": "cuda", "mode": "decode"}, {"cold": True, "budget_s": None}),
        ({"device": "cuda", "mode": "decode", "cold": False}, {"cold": False}),
        ({"mode": "decode", "fill": True}, {"fill": True, "cold": False}),
        ({"mode": "decode", "fill": False}, {"fill": False}),
        ({"width": "256"}, {"tokens": 8192}),
        ({"width": "1024"}, {"tokens": 8192}),
        ({"width": "2048"}, {"tokens": 2048}),
        ({"width": "256,4096"}, {"tokens": 512}),
        ({"width": "2048", "tokens": "4k"}, {"tokens": 4096}),
        ({"width": 64}, {"variants": ()}),
    ],
)
def test_what_is_left_out_is_chosen(given, chosen, monkeypatch):
    """A batch of wide layers costs a CPU what one of 1,024 does; GPUs have a clock and a cache."""
    monkeypatch.setattr(requests, "cores", lambda: 7)
    asked = request(read({"device": "cpu", **given}), elsewhere=True)
    found = vars(asked.settings) | vars(asked)
    assert {name: found[name] for name in chosen} == chosen


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch": 4, "tokens": "8k"}, "--tokens has no effect with --batch, which fixes"),
        ({"fill": False}, "--fill has no effect without --mode decode"),
        ({"step": "1,4"}, "--step has no effect without --mode decode"),
        ({"precision": "1%", "quick": True}, "--precision ends a block after 4 rounds"),
    ],
)
def test_what_has_no_effect_is_refused(given, said):
    with pytest.raises(UsageError, match=said):
        request(read(given))


def test_a_divided_sweep_chooses_no_budget():
    assert request({}, divided=True).budget_s is None


def test_a_resumed_sweep_takes_the_options_of_this_time_and_todays_memory(monkeypatch):
    stored = request(read({"width": "16,32", "heads": 2, "device": "cpu", "rounds": 4}))
    memory = {"memory_limit_bytes": 12345}
    monkeypatch.setattr(type(find("cpu")), "sampling", lambda *how, **ever: memory)
    again = resumed_request(stored, read({"rounds": 9, "dtype": "bf16", "device": "auto"}))
    assert again.settings.memory_limit_bytes == 12345
    assert (again.rounds, again.device, again.lengths) == (9, "cpu", stored.lengths)
    assert [(size.width, size.dtype) for size in again.sizes] == [
        *((16, "bfloat16"), (32, "bfloat16")),
    ]


def test_a_classifier_has_whole_stacks():
    """Two layers of the preset, and stacks of two and of three."""
    stacks = "stack(fnet+local),stack(2*fnet+local)"
    assert request(read({"models": stacks})).layers == 6
    assert request(read({"models": stacks, "level": "attention"})).layers == 2
    assert request(read({"models": stacks, "layers": 4})).layers == 4


@given(st.dictionaries(st.sampled_from(["preset", "slurm"]), st.text(max_size=20)))
def test_any_text_of_an_option_is_a_text_of_the_file(values):
    lines = to_toml(values).decode("utf-8", "surrogateescape")
    assert tomllib.loads(lines) == values


@pytest.mark.parametrize("unit", ["ms", "s", "m", "h"])
def test_any_time_in_a_file_is_read_again(unit):
    for tenths in range(1, 1000):
        asked = read({"budget": f"{tenths / 10}{unit}"})
        assert read(tomllib.loads(to_toml(asked).decode())) == asked


@pytest.mark.parametrize(
    "file",
    sorted((Path(__file__).parents[3] / "reports").rglob("sweep.toml")),
    ids=lambda file: file.parent.name,
)
def test_stored_files_of_options_of_any_version_are_repeated(file):
    assert request(from_toml(file)).models


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mode": "decode", "tokens": 4096}, "--tokens has no effect with --mode decode"),
        ({"mode": "decode", "causal": True}, "--causal has no effect with --mode decode"),
        ({"mode": "inference", "dropout": 0.5}, "--dropout has no effect without --mode training"),
    ],
)
def test_what_no_mode_that_is_measured_takes_is_refused(given, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        request(read({"models": ["transformer"], **given}))
