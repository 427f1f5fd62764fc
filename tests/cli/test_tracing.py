"""`sweep --trace`: which case is meant, and what is written and printed of it."""

import json
from dataclasses import replace
from unittest.mock import MagicMock

import pytest

from attnbench.cli.tracing import chosen, file_name, operators_table, trace
from attnbench.errors import CannotRun, UsageError
from attnbench.records import Mode, Settings
from tests.cli.commands import here, refused
from tests.run.sessions import PLAN, REQUEST, planned

SWEEP = (
    *("sweep", "--models", "fastformer,transformer:eager", "--lengths", "16", "--tokens", "64"),
    *("--width", "32", "--heads", "2", "--threads", "1", "--quick", "--device", "cpu"),
)


def with_options(one, **options):
    return replace(one, case=replace(one.case, options=tuple(options.items())))


FORM = planned("slow", 512, 1, form="sdpa")
OPTIONS = with_options(planned("low", 512, 1), rank=64)
TRAINING = planned("slow", 128, 1, mode=Mode.TRAINING)
ALL = (*PLAN, FORM, OPTIONS, TRAINING)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("fast/inference/256", PLAN[4]),
        ("fast:eager/inference/256", PLAN[4]),
        ("slow/training/128", TRAINING),
        ("slow:sdpa/inference/512", FORM),
        ("low/inference/512", OPTIONS),
        ("low[rank=64]/inference/512", OPTIONS),
        (str(FORM.case), FORM),
    ],
)
def test_a_case_is_named_as_briefly_as_is_clear(wanted, found):
    assert chosen(wanted, ALL) is found


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("slow", "write MECHANISM/MODE/LENGTH, as in slow:eager/inference/128"),
        ("slow/inference/512", "means 2 cases; write slow:eager/inference/512 or slow:sdpa"),
        ("slow/inference/1k", "unknown case 'slow/inference/1024'; did you mean slow:"),
        ("slow/inference/long", "is not a size"),
        ("low[rank=32]/inference/512", "unknown case"),
    ],
)
def test_what_is_not_one_case_is_refused(wanted, said):
    with pytest.raises(UsageError) as error:
        chosen(wanted, ALL)
    assert said in str(error.value)


def test_a_label_makes_a_file_name():
    assert file_name("/a/b.py:M/B1-N2") == "a-b.py-M-B1-N2"
    assert len(file_name("x" * 1000)) == 200


def test_what_an_operator_frees_is_negative():
    row = {"operator": "o", "self_s": 1.0, "share": 0.5, "calls": 2, "allocated_bytes": -2048}
    ((*_, freed),) = operators_table("s", "w", {"operators": [row], "iteration_s": 1.0}).rows
    assert freed.text == "−2.000 KiB"


def test_a_trace_is_written_and_the_costliest_operators_are_printed(tmp_path):
    out = tmp_path / "out"
    done = here(*SWEEP, "--out", out, "--trace", "fastformer/training/16", "--json")
    printed = json.loads(done.stdout)
    (file,) = out.iterdir()
    assert str(file) == printed["file"]
    events = json.loads(file.read_text())["traceEvents"]
    operators = printed["operators"]
    assert 0 < len(operators) <= 10
    assert {row["operator"] for row in operators} <= {event.get("name") for event in events}
    shares = [row["share"] for row in operators]
    assert shares == sorted(shares, reverse=True)
    assert 0.3 < sum(shares) <= 1 + 1e-9
    assert all(row["self_s"] > 0 and row["calls"] > 0 for row in operators)


def traced(tmp_path, **settings):
    """What the process of a trace is asked; it fails."""
    server = MagicMock(folder=tmp_path)
    ask = server.worker().__enter__().ask
    ask.return_value = {"outcome": "failed", "reason": "no"}
    request = replace(REQUEST, settings=Settings(**settings))
    with pytest.raises(CannotRun, match="failed: no"):
        trace(str(PLAN[0].case), PLAN, request, server, tmp_path, as_json=False)
    return ask.call_args.kwargs


def test_a_trace_is_of_the_iteration_that_a_sweep_would_time(tmp_path):
    assert traced(tmp_path, cuda_graphs=True, warmup_s=0.5).items() >= {
        ("cuda_graphs", True),
        ("warmup_s", 0.5),
    }
    with pytest.raises(UsageError, match="--cold has no effect on --trace"):
        traced(tmp_path, cold=True)


def test_a_trace_of_what_cannot_run_says_why_and_writes_nothing(tmp_path):
    for more, said in (
        (("--trace", "fastformer/training/17"), "unknown case"),
        (("--trace", "fastformer/training/16", "--dry-run"), "leave out --on, --shard"),
        (("--trace", "fastformer/training/16", "--causal"), "no causal form"),
    ):
        assert said in refused(*SWEEP, "--out", tmp_path / "out", *more)
        assert not (tmp_path / "out").exists()
