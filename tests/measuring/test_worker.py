"""What a worker answers of forms, cores and cases."""

import pytest

from attnbench.measuring import worker as measuring
from attnbench.measuring.worker import Probes, Worker
from tests.measuring.cases import answered, case, sent


@pytest.fixture
def worker():
    return Worker(None, seed=0)


def test_forms_that_compile_are_not_those_that_a_check_measures():
    answer = answered(Worker(None, seed=0), "loads", mechanism="local", device="cpu")
    assert [*answer["forms"]] == ["eager"]


def test_what_a_process_cannot_load_is_told_with_the_files_of_its_tree(tmp_path):
    (tmp_path / "mine.py").write_text("raise ValueError('no\\nwidth')\n")
    answer = Worker(str(tmp_path), seed=0).answer("loads", mechanism="mine.py:It", device="cpu")
    assert answer["outcome"] == "failed"
    assert "ValueError: no" in answer["reason"]
    assert "files" not in answer or all(file.endswith(".py") for file in answer["files"])


def test_a_case_has_to_be_named_in_full(worker):
    answer = worker.answer("build", mechanism="transformer", options=[])
    assert answer["outcome"] == "failed"
    assert answer["reason"] == "transformer was asked for without a case"


def test_a_process_goes_on_unless_the_mechanism_has_changed_it(worker, monkeypatch):
    for changes in ("", "gradients True to False"):
        monkeypatch.setattr(worker.state, "changes", lambda: changes)  # noqa: B023
        answered(worker, "build", **sent(case()))
        found = answered(worker, "finish")
        assert found["needs_new_process"] is bool(changes)
        assert found["notes"].get("changed", "") == changes
        assert not hasattr(worker, "built")


@pytest.mark.parametrize("checked", [False, True])
def test_memory_takes_a_process_of_its_own_unless_only_counts_matter(worker, checked):
    found = answered(worker, "measure_memory", checked=checked, **sent(case()))
    assert found["needs_new_process"] is not checked
    assert "transformer:eager" in found["case"]


def test_outputs_that_were_kept_are_those_that_come_again(worker, tmp_path):
    asked = {**sent(case()), "path": str(tmp_path / "outputs")}
    answered(worker, "outputs", keeps=True, **asked)
    found = answered(worker, "outputs", keeps=False, **asked)
    assert found.get("error", 0.0) <= found["allowed"]
    other = answered(Worker(None, seed=1), "outputs", keeps=False, **asked)
    assert other["error"] > other["allowed"]


def test_a_core_is_probed_once_and_each_probe_is_told_once(worker, monkeypatch):
    bound, started = [], []
    monkeypatch.setattr(measuring.SYSTEM, "bind", lambda pid, cores: bound.append(cores))
    monkeypatch.setattr(Probes, "run", lambda self: started.append(self))
    answered(worker, "probe", core=3)
    worker.probes(3).times_s.extend([0.1, 0.2])
    told = [[*answered(worker, "probe", core=3)["probes"]] for _ in range(2)]
    assert told == [[0.1, 0.2], []]
    assert (bound, len(started)) == ([{3}], 1)
