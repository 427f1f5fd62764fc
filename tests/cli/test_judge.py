"""`judge`: a kernel in, a verdict out."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import here, refused

KERNELS = str(Path(__file__).parents[1] / "verify" / "kernels.py")
SHORT = ("--lengths", "16,32", "--budget", "6s")


def test_a_right_kernel_is_raced_and_all_is_told():
    done = here("judge", f"{KERNELS}:always_causal", "--as", "transformer", *SHORT, "--json")
    found = json.loads(done.stdout)
    assert found["right"]
    assert found["steady"]
    assert (found["axes"], found["causal"], found["untaken"]) == ("bhnd", True, ["causal"])
    assert {row["mode"] for row in found["speedups"]} <= {"inference", "training"}
    assert found["text"][0] == "always_causal as transformer (float32, cpu): right; steady."
    assert "without causal, which it does not take" in found["text"][1]
    assert "as bnhd, causal it errs by" in found["text"][1]
    assert {"inputs", "errors", "rival", "allowed", "verdict"} <= found["panel"][0].keys()
    assert "outcome" not in found


def test_a_wrong_kernel_is_not_raced_and_ends_with_1():
    done = here("judge", f"{KERNELS}:without_diagonal", "--as", "transformer", *SHORT, code=1)
    assert "NOT right (as usual at N = 100" in done.stdout
    assert "Not raced" in done.stdout
    assert "dk" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((KERNELS, "--as", "transformer"), "is not of the form path/to/file.py:FUNCTION"),
        (("mine.py:f", "--as", "transformer"), "no file 'mine.py'"),
        ((f"{KERNELS}:softmax", "--as", "transfomer"), "did you mean transformer"),
        ((f"{KERNELS}:softmax", "--as", "@fig2"), "is not one mechanism"),
        ((f"{KERNELS}:softmax", "--as", "transformer[x=1]"), "no option 'x'; options: axes, bias"),
        ((f"{KERNELS}:softmax", "--as", "transformer[axes=nhd]"), "axes is 'nhd', not bhnd or"),
        ((f"{KERNELS}:softmax", "--as", "fnet"), "the mechanism has no core"),
        ((f"{KERNELS}:raises", "--as", "transformer"), "RuntimeError: no kernel for this card"),
        ((f"{KERNELS}:nothing", "--as", "transformer"), "there is no function 'nothing'"),
        ((f"{KERNELS}:softmax", "--as", "transformer", "--dtype", "int8"), "int8"),
        ((f"{KERNELS}:softmax", "--as", "transformer", "--dtype", "fp32,bf16"), "give one"),
        ((f"{KERNELS}:softmax", "--as", "transformer", "--causal"), "judge takes no --causal"),
        (("--lengths", 16, f"{KERNELS}:nothing", "--as", "transformer"), "there is no function"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_line(arguments, said):
    assert said in refused("judge", *arguments)


def test_a_function_is_a_series_of_an_ordinary_sweep(tmp_path):
    models = f"transformer:{KERNELS}:softmax,transformer:{KERNELS}:always_causal,transformer"
    asked = ("--level", "core", "--lengths", "16", "--causal", "--budget", "none", "--quick")
    here("sweep", "--models", models, *asked, "--mode", "inference", "--out", tmp_path / "sweep")
    text = (tmp_path / "sweep" / "cases.csv").read_text()
    assert text.count("kernels.py:softmax") >= 1
    assert text.count(",ok,") == 3


def test_stress_belongs_to_verify():
    assert "--stress has no effect without --verify" in refused("models", "fnet", "--stress")
