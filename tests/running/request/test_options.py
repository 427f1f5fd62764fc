"""Options as users write them: to requests and back, and in files."""

import tomllib
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from attnbench.commands.verbs import command
from attnbench.errors import UsageError
from attnbench.records import Clock, Cluster
from attnbench.records.storage import schema
from attnbench.records.storage.schema import Head
from attnbench.running.request import requests
from attnbench.running.request.options import flag, options, read
from attnbench.running.request.requests import from_toml, request, resumed, to_toml

SIZES = st.lists(st.integers(1, 1 << 20), min_size=1, max_size=3, unique=True)
TIMES = st.one_of(st.just("none"), st.integers(1, 9999).map("{}m".format))
LISTED = st.sampled_from(["fastformer", "linformer[rank=64]", "@fig2", "transformer:*", "./m.py:A"])
MEASURED = {
    "models": st.lists(LISTED, min_size=1, max_size=3),
    "lengths": st.lists(st.integers(1, 1 << 20), min_size=1, max_size=4),
    "mode": st.sampled_from(["both", "inference", "training", "inference,training"]),
    "causal": st.booleans(),
    "padding": st.floats(0, 0.95),
    "preset": st.sampled_from(["pubmed", "llama"]),
    "width": SIZES,
    "heads": SIZES,
    "dtype": st.lists(st.sampled_from(["fp32", "bfloat16", "float64"]), min_size=1, unique=True),
    "device": st.sampled_from(["auto", "cpu"]),
    "threads": st.integers(1, 1 << 20),
    "budget": TIMES,
    "case-timeout": TIMES,
    "rounds": st.integers(1, 99),
    "quick": st.booleans(),
    "cold": st.just(False),
    "seed": st.integers(0, (1 << 32) - 1),
}
OF_MODEL = {"layers": st.integers(1, 99), "dropout": st.floats(0, 0.9)}
VALUES = st.one_of(
    st.fixed_dictionaries({}, optional={**MEASURED, **OF_MODEL, "tokens": st.sampled_from(["8k"])}),
    st.fixed_dictionaries(
        {"level": st.sampled_from(["core", "attention"])}, optional={**MEASURED, "batch": SIZES}
    ),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def alike(first, second):
    """Whether two requests agree in all but the memory that the machine has at the moment."""
    limit = first.settings.memory_limit_bytes
    settings = replace(second.settings, memory_limit_bytes=limit)
    return first == replace(second, settings=settings)


COMMAND: Any = command("sweep")


def on_the_command_line(words):
    """The values of the options in these words after `attnbench sweep`."""
    context = COMMAND.make_context("sweep", words)
    return read({name: context.params[name] for name in options()})


def said(value):
    """What follows the name of an option with this value: nothing for a flag."""
    listed = value if isinstance(value, tuple) else (value,)
    words = ",".join("none" if each is None else str(each) for each in listed)
    return () if value is True else (words,)


def through_a_journal(asked):
    """The request, stored and read again."""
    line = schema.seal(schema.to_entry(Head(name="x", attnbench="1", request=asked), ""))
    return schema.from_entry(schema.unseal(line)).request


@settings(max_examples=30, phases=(Phase.generate,))
@given(VALUES, TEXT)
def test_every_way_to_write_a_request_asks_for_the_same(values, slurm):
    """From Python to the command line, the file of the sweep, its journal, and a resume."""
    given = read({**values, "slurm": slurm})
    written = {name: value for name, value in given.items() if value is not False}
    wanted = request(given)
    words = [(flag(name), *said(value)) for name, value in written.items()]
    assert on_the_command_line([*chain.from_iterable(words)]) == written
    assert read(tomllib.loads(to_toml(given).decode())) == given
    stored = through_a_journal(wanted)
    assert stored == wanted
    assert alike(resumed(stored, {}), wanted)


def test_numbers_lists_and_hyphens_are_read_as_text_is():
    values = {"lengths": [128, "1k"], "case-timeout": 90, "width": 64, "cold": False, "heads": None}
    assert read(values) == {
        "lengths": (128, 1024),
        "case_timeout": 90.0,
        "width": (64,),
        "cold": False,
    }
    arrays = {"lengths": numpy.array([128, 256]), "batch": range(1, 4), "rounds": numpy.int64(5)}
    assert read(arrays) == {"lengths": (128, 256), "batch": (1, 2, 3), "rounds": 5}


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


def test_a_file_is_stored_with_the_name_of_its_module(tmp_path):
    """So that a sweep means the same after the file has got another module."""
    file = tmp_path / "mine.py"
    file.write_text("def local(q, k, v): ...")
    assert read({"models": [str(file), "fnet"]}) == {"models": (f"{file}:local", "fnet")}


def test_every_combination_of_sizes_is_asked_for():
    asked = request(read({"width": [64, 128], "heads": 2, "dtype": "fp32,bf16", "batch": 4}))
    assert [(v.width, v.dtype, v.batch) for v in asked.sizes] == [
        (64, "float32", 4),
        (64, "bfloat16", 4),
        (128, "float32", 4),
        (128, "bfloat16", 4),
    ]
    assert (asked.width, asked.dtype, asked.batch) == (64, "float32", 4)


@pytest.mark.parametrize("name", list(options()))
def test_every_option_says_what_it_is(name):
    option = options()[name]
    assert option.help.endswith(".")
    assert option.default is not None or option.chosen or option.record is Cluster


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
