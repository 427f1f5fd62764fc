"""What notes mean: one row for each, and the keys that code writes are among them."""

import ast
from pathlib import Path

import pytest

from attnbench.analysis.warnings import WARNINGS
from attnbench.records.notes import NOTES, Note, column_notes, left_running
from tests.measuring.cases import measured

ROOT = Path(__file__).parents[2] / "attnbench"


def test_notes_that_are_columns_are_in_the_order_of_the_table():
    assert column_notes() == ("attention_kernel", "number_types", "arithmetic", "uncounted")


def test_a_note_that_a_report_warns_of_has_its_sentence_from_the_table():
    sentences = {sentence for _, sentence in WARNINGS.values()}
    for note, row in NOTES.items():
        assert not row.warning or row.warning in sentences, note


def test_notes_are_named_by_the_table_wherever_they_are_read():
    """Not by a text of which nobody knows whether it is one."""
    keys = {*Note}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = []
            if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("notes"):
                named = [node.slice]
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("notes.get"):
                named = node.args[:1]
            if isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]).endswith("notes"):
                named = [node.left]
            texts = {each.value for each in named if isinstance(each, ast.Constant)}
            assert not texts & keys, f"{path} line {node.lineno}"


def test_a_worker_writes_no_other_note():
    found, _ = measured("Honest")
    assert found["notes"]
    assert {*found["notes"]} <= {*Note}


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, {}), (1, {"processes": "started 1 process that had to be ended"})],
)
def test_what_was_left_running_is_counted(count, said):
    assert left_running(count) == said
