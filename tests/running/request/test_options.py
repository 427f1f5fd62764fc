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
from attnbench.records import Cluster
from attnbench.records.storage import schema
from attnbench.records.storage.schema import Head
from attnbench.running.request.options import flag, options, read
from attnbench.running.request.requests import request, resumed_request, to_toml

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
).filter(lambda values: "dropout" not in values or values.get("mode") != "inference")
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
    assert alike(resumed_request(stored, {}), wanted)


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


def test_a_file_is_stored_with_the_name_of_its_module(tmp_path):
    """So that a sweep means the same after the file has got another module."""
    file = tmp_path / "mine.py"
    file.write_text("def local(q, k, v): ...")
    assert read({"models": [str(file), "fnet"]}) == {"models": (f"{file}:local", "fnet")}


@pytest.mark.parametrize("name", list(options()))
def test_every_option_says_what_it_is(name):
    option = options()[name]
    assert option.help.endswith(".")
    assert option.default is not None or option.chosen or option.record is Cluster
