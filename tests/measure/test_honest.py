"""No honest module is accused, of whatever kind; at most its state is noticed."""

from pathlib import Path

import pytest

from attnbench.measure.worker import Worker
from attnbench.records import PASSES
from tests.measure.cases import answered, case, sent
from tests.measure.honest import KINDS, STATEFUL

FILE = Path(__file__).with_name("honest.py")


@pytest.mark.parametrize("mode", PASSES)
@pytest.mark.parametrize("name", KINDS)
def test_an_honest_module_is_not_accused(name, mode):
    worker = Worker(None, seed=0)
    one = sent(case(f"{FILE}:{name}", mode=mode, batch=4))
    answered(worker, "build", suspicious=True, inputs_seed=1, **one)
    for _ in range(2):
        answered(worker, "lap", iterations=3)
    notes = answered(worker, "finish")["notes"]
    assert "suspect" not in notes, notes
    odd = notes.get("odd", "")
    assert not odd or ("stateful?" in odd and name in STATEFUL), notes
