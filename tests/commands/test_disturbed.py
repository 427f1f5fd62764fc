"""A journal that others take away while a sweep is reported: the report is of what was measured."""

import pytest

from attnbench.commands.sweep import command as sweep
from attnbench.devices.kinds.cpu import Cpu
from attnbench.errors import StoreError
from attnbench.records.storage.journal import FILE, KEPT, load
from attnbench.running.request.options import read
from tests.commands.test_notebook import SMALL, soon
from tests.records.storage.test_disturbed import replaced


@pytest.mark.long
def test_what_becomes_of_a_journal_while_it_is_reported_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(Cpu, "sampling", soon)
    folder, reported = tmp_path / "sweep", []

    def show(into, measured):
        reported.append(measured)
        replaced(into / FILE)

    with pytest.raises(StoreError, match=r"was replaced by another file .* is kept in"):
        sweep.sweep_with(read(SMALL), out=folder, show=show)
    (shown,) = reported
    assert len(shown.plan) == 4
    assert {run.outcome for run in shown.runs} == {"ok"}
    assert load(folder / KEPT).runs == shown.runs
    assert load(folder).name != shown.name
