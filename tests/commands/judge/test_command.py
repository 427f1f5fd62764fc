"""`judge`: kernels in, verdicts out."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from attnbench.commands.judge.command import finish
from attnbench.records import KernelFinding
from tests.commands.commands import attnbench, here, refused
from tests.commands.judge.test_page import found, verdict

FOLDER = Path(__file__).parents[2] / "attention" / "checks"
KERNELS, PLANTED = str(FOLDER / "kernels.py"), str(FOLDER / "planted.py")
SMALL = ("--lengths", "16,32", "--width", "64", "--heads", "4", "--batch", "2", "--rounds", "1")
SHORT = (*SMALL, "--budget", "20s")


def judged(*arguments, code=0):
    """What `--json` says of the one function."""
    (found,) = json.loads(here("judge", *arguments, "--json", code=code).stdout)
    return found


def test_a_right_kernel_is_raced_and_all_is_told():
    found = judged(f"{KERNELS}:always_causal", "--as", "transformer", *SHORT)
    assert found["right"]
    assert found["steady"]
    assert found["sound"]
    assert (found["options"]["axes"], found["modes"]) == ("bhnd", [True])
    assert found["untaken"] == ["causal"]
    assert {row["mode"] for row in found["speedups"]} <= {"inference", "training"}
    assert found["text"][0].startswith("always_causal as transformer (float32, cpu): right (N = 1")
    assert "heads of width 16, 64, 96 and 128" in found["text"][1]
    assert "the same call" in found["text"][1]
    called = next(line for line in found["text"] if line.startswith("Called with"))
    assert "without causal, which it does not take" in called
    assert "as bnhd, causal it errs by" in called
    tried = {row["attempt"]["tokens"] for row in found["panel"] if row["errors"]}
    assert set(found["raced"]) <= tried
    assert {"inputs", "batch", "width", "heads"} <= found["panel"][0]["attempt"].keys()


def test_a_wrong_kernel_is_not_raced_and_ends_with_1():
    done = here("judge", f"{KERNELS}:without_diagonal", "--as", "transformer", *SHORT, code=1)
    assert "NOT right (as usual, causal, at N = 17" in done.stdout
    assert "Not raced" in done.stdout


def test_a_budget_that_ends_before_the_first_call_decides_nothing():
    function = (f"{KERNELS}:always_causal", "--as", "transformer", *SMALL, "--budget", "1ms")
    done = here("judge", *function, code=3)
    assert "the budget ended before it was called once; --budget" in done.stderr
    assert judged(*function, code=3)["error"] in " ".join(done.stderr.split())


@pytest.mark.long
def test_several_functions_have_a_line_each():
    functions = (f"{PLANTED}:sdpa", f"{PLANTED}:causal_is_ignored")
    mode = ("--as", "transformer", "--causal")
    done = here("judge", *functions, *mode, *SMALL, "--budget", "30s", code=1)
    right, wrong = done.stdout.replace("\n  ", " ").splitlines()
    assert right.startswith("sdpa as transformer (float32, cpu): right")
    assert "NOT right (as usual, causal, at N = 17" in wrong


@pytest.mark.long
@pytest.mark.parametrize("function", ["sdpa", "grouped"])
def test_a_mode_that_is_chosen_is_the_only_one(function):
    mode = ("--as", "transformer", "--no-causal", "--mode", "inference")
    found = judged(f"{PLANTED}:{function}", *mode, *SHORT)
    assert found["modes"] == [False]
    assert not any(row["attempt"]["causal"] for row in found["panel"])


@pytest.mark.long
def test_a_kernel_that_hangs_ends_within_the_budget():
    found = judged(f"{PLANTED}:hangs", "--as", "transformer", *SMALL, "--budget", "40s", code=1)
    hung = [row for row in found["panel"] if row["finding"] == "no answer"]
    assert hung[0]["attempt"]["tokens"] == 100
    assert "no answer: after" in found["text"][0]


@pytest.mark.long
def test_a_kernel_that_loses_its_graph_at_one_length_is_not_right():
    found = judged(f"{PLANTED}:graph_lost_in_the_middle", "--as", "transformer", *SHORT, code=1)
    assert "at N = 100" in found["text"][0]
    assert "wrong: no gradients, which it gives as usual, at N = 1" in found["text"][0]


# a stand-in for a GPU that answers no call any more, in the process that runs the kernel
BREAKS = """
import torch

TEXT = "CUDA error: an illegal memory access was encountered"

def fails(device=None):
    raise RuntimeError(TEXT)

def kernel(q, k, v, causal=False):
    if q.shape[-2] == 100:
        torch.cuda.is_initialized = lambda: True
        torch.cuda.synchronize = fails
        fails()
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
"""


@pytest.mark.long
def test_a_kernel_that_breaks_the_gpu_fails_in_the_words_of_the_gpu(tmp_path):
    file = tmp_path / "kern.py"
    file.write_text(BREAKS)
    every = ("--as", "transformer", "--no-causal", *SMALL, "--budget", "none")
    found = judged(f"{file}:kernel", *every, code=1)
    broken = [row for row in found["panel"] if row["attempt"]["tokens"] == 100]
    assert {row["finding"] for row in broken} == {"failed"}
    assert {row["reason"] for row in broken} == {
        "CUDA error: an illegal memory access was encountered"
    }
    # a fresh process tries the others
    assert any(
        row["finding"] == "passed" and row["attempt"]["tokens"] > 100 for row in found["panel"]
    )
    assert "NOT right" in found["text"][0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("lazy_in_the_end", "SUSPECT: in the race it"),
        ("fails_in_the_end", "it FAILED in the race (inference at N = "),
    ],
)
def test_what_shows_in_the_race_alone_is_not_right_and_not_faster(function, said):
    race = ("--as", "transformer", "--mode", "inference", *SMALL, "--budget", "60s")
    # a process of its own, which takes as many samples as a user's race does
    done = attnbench("judge", f"{PLANTED}:{function}", *race, "--json", code=1)
    (found,) = json.loads(done.stdout)
    assert said in found["text"][0]
    assert not found["right"]
    assert not found["sound"]
    assert not any(line.startswith(("Faster", "As fast")) for line in found["text"])


@pytest.mark.long
def test_a_memory_that_never_answers_wrongly_is_neither_accused_nor_faster():
    race = ("--as", "transformer", "--mode", "inference", *SMALL, "--budget", "60s")
    found = judged(f"{PLANTED}:remembers_rightly", *race)
    assert found["sound"]
    assert not any(line.startswith("Faster") for line in found["text"])


RIGHT, UNTRIED, WRONG = KernelFinding.PASSED, KernelFinding.UNTRIED, KernelFinding.WRONG


@pytest.mark.parametrize(
    ("kernels", "code"),
    [
        ([[RIGHT]], 0),
        ([[RIGHT, UNTRIED]], 3),
        ([[UNTRIED]], 3),
        ([[RIGHT, UNTRIED, WRONG]], 1),
        ([[RIGHT, UNTRIED], [RIGHT]], 3),
        ([[RIGHT, UNTRIED], [WRONG]], 1),
        ([[RIGHT, UNTRIED], []], 2),
        ([[RIGHT], []], 2),
        ([[WRONG], []], 1),
    ],
)
def test_what_was_not_finished_is_neither_right_nor_wrong(kernels, code):
    """Each kernel by what was found of its attempts; without any, it could not be judged."""
    verdicts = [
        replace(verdict(*map(found, rows)), error="" if rows else "it raises") for rows in kernels
    ]
    if code == 0:
        finish(verdicts, json_=True)
        return
    with pytest.raises(typer.Exit) as ended:
        finish(verdicts, json_=True)
    assert ended.value.exit_code == code


@pytest.mark.long
def test_a_budget_that_ends_too_soon_says_which_may_do():
    """On a machine of any speed: it waits for a second in every call."""
    mode = ("--as", "transformer", "--mode", "inference", *SMALL, "--budget", "30s")
    done = here("judge", f"{PLANTED}:waits", *mode, code=3)
    said = " ".join(done.stdout.split())
    assert "as far as it was tried" in said
    assert re.search(r"NOT FINISHED: \d+ of \d+ attempts were not made", said)
    assert re.search(r"--budget \d+[ms] may decide it\.", said)


@pytest.mark.long
def test_what_changes_torch_is_said():
    found = judged(f"{PLANTED}:detects_anomalies", "--as", "transformer", *SHORT, code=1)
    assert "CHANGES torch's detection of anomalies False to True" in found["text"][0]


def test_an_error_is_json_too():
    error = judged(f"{KERNELS}:raises", "--as", "transformer", *SHORT, code=2)
    assert "RuntimeError: no kernel for this card" in error["error"]
    error = judged(f"{KERNELS}:softmax", "--as", "transfomer", code=2)
    assert "did you mean transformer" in error["error"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((KERNELS, "--as", "transformer"), "is not of the form path/to/file.py:FUNCTION"),
        (("mine.py:f", "--as", "transformer"), "no file 'mine.py'"),
        ((f"{KERNELS}:softmax", "--as", "transfomer"), "did you mean transformer"),
        ((f"{KERNELS}:softmax", "--as", "@fig2"), "is not one mechanism"),
        ((f"{KERNELS}:softmax", "--as", "transformer[x=1]"), "no option 'x'; options: axes, bias"),
        pytest.param(
            (f"{KERNELS}:softmax", "--as", "transformer[axes=nhd]"),
            "axes is 'nhd', not bhnd or",
            marks=pytest.mark.long,
        ),
        pytest.param(
            (f"{KERNELS}:delta", "--as", "kimi_delta[lower_bound=2]"),
            "logs of decays are below 0",
            marks=pytest.mark.long,
        ),
        pytest.param(
            (f"{KERNELS}:softmax", "--as", "fnet"),
            "the mechanism has no core",
            marks=pytest.mark.long,
        ),
        pytest.param(
            (f"{KERNELS}:raises", "--as", "transformer"),
            "RuntimeError: no kernel for this card",
            marks=pytest.mark.long,
        ),
        pytest.param(
            (f"{KERNELS}:nothing", "--as", "transformer"),
            "there is no function 'nothing'",
            marks=pytest.mark.long,
        ),
        ((f"{KERNELS}:other_names", "--as", "transformer"), "it takes decay, which nothing gives"),
        ((f"{KERNELS}:softmax", "--as", "transformer", "--dtype", "int8"), "int8"),
        ((f"{KERNELS}:softmax", "--as", "transformer", "--dtype", "fp32,bf16"), "give one"),
        ((f"{KERNELS}:softmax", "--as", "transformer", "--layers", "2"), "--layers"),
        (("--lengths", 16, f"{KERNELS}:nothing", "--as", "transformer"), "there is no function"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_line(arguments, said):
    assert said in refused("judge", *arguments)


def test_a_path_that_reads_as_options_is_refused_before_anything_runs(tmp_path):
    file = tmp_path / "k[1].py"
    file.write_text("def f(q, k, v):\n    return v\n")
    assert "rename it" in refused("judge", f"{file}:f", "--as", "transformer")


def test_help_says_how_arguments_are_bound():
    told = " ".join(here("judge", "--help").stdout.split())
    for words in (
        "query, key, value",
        "x, dt, A, B, C",
        "key_padding_mask",
        "--causal",
        "--budget",
    ):
        assert words in told


@pytest.mark.long
def test_a_function_is_a_series_of_an_ordinary_sweep(tmp_path):
    models = f"transformer:{KERNELS}:softmax,transformer:{PLANTED}:sdpa,transformer:sdpa"
    sizes = ("--lengths", "16", "--width", "64", "--heads", "4", "--batch", "2")
    options = ("--level", "core", "--causal", "--budget", "none", "--quick", "--mode", "inference")
    here("sweep", "--models", models, *sizes, *options, "--out", tmp_path / "sweep")
    text = (tmp_path / "sweep" / "cases.csv").read_text()
    assert text.count("kernels.py:softmax") >= 1
    assert text.count("planted.py:sdpa") >= 1
    assert text.count(",ok,") == 3


def test_stress_belongs_to_verify():
    assert "--stress has no effect without --verify" in refused("models", "fnet", "--stress")
