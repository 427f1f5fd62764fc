"""Truncated or modified journals, read and resumed by the verbs."""

import random

import pytest

from attnbench.errors import StoreError
from attnbench.records.storage.journal import FILE, load
from tests.commands.commands import here
from tests.faults.real import BEGUN, RUNS, SMALL, complete, runs, said

SEEDS = range(24)
STRIDE = 16  # between cuts, as each resumption starts processes


def verb(*arguments):
    """The completed verb, in this process."""
    return here(*arguments, code=None)


def of(finished, folder, change=lambda data: data):
    """A folder with a modified journal of the finished sweep."""
    folder.mkdir()
    (folder / FILE).write_bytes(change((finished / FILE).read_bytes()))
    return folder


def last_line(finished):
    """All positions at which the last line can be cut, from its first byte to its last."""
    data = (finished / FILE).read_bytes()
    return range(data.rstrip(b"\n").rindex(b"\n") + 1, len(data))


@pytest.mark.faults
def test_wherever_a_line_is_cut_a_report_is_made_and_the_sweep_goes_on(finished, tmp_path):
    """Its last line, whose run is measured again, or one of those before."""
    lines, before = (finished / FILE).read_bytes().splitlines(keepends=True), runs(finished)
    rng, last = random.Random(3), last_line(finished)
    cuts = [*last[::STRIDE], last[-1]]
    for number in rng.sample(range(BEGUN, len(lines) - 1), 6):
        cuts.append(sum(map(len, lines[:number])) + rng.randrange(1, len(lines[number]) - 1))
    for cut in cuts:
        folder = of(finished, tmp_path / f"s{cut}", lambda data, cut=cut: data[:cut])
        words = said(verb("report", folder), 0)
        assert ("the last line is torn" in words) == (cut not in (last[0], last[-1]))
        assert (folder / FILE).stat().st_size == cut
        said(verb("sweep", *SMALL, "--resume", folder), 0)
        assert complete(folder) == before or cut not in last


def changed(data, seed):
    """The journal with some bytes before the last line changed, at seeded positions."""
    rng, journal = random.Random(seed), bytearray(data)
    for _ in range(rng.choice((1, 2, 5))):
        position = rng.randrange(len(data.splitlines()[0]) * (seed % 8 != 0), len(data) - 120)
        journal[position] = rng.choice([*set(range(256)) - {journal[position]}])
    return bytes(journal)


@pytest.mark.faults
@pytest.mark.parametrize("seed", SEEDS)
def test_changed_bytes_invalidate_only_their_lines(finished, tmp_path, seed):
    folder = of(finished, tmp_path / "changed", lambda data: changed(data, seed))
    damaged = (folder / FILE).read_bytes()
    resume = ("sweep", *SMALL, "--resume", folder)
    try:
        load(folder)
    except StoreError:
        for words in (("report", folder), resume):
            said(verb(*words), 2, "the first line of", "restore the file from a copy")
        assert (folder / FILE).read_bytes() == damaged
        return
    assert "set aside" in said(verb("report", folder), 0)
    assert (folder / FILE).read_bytes() == damaged
    said(verb(*resume), 0)
    sweep = load(folder)
    assert sweep.finished
    assert len(sweep.plan) * 3 == len(sweep.runs) == RUNS
    assert {run.outcome for run in sweep.runs} == {"ok"}
    assert (folder / FILE).read_bytes().startswith(damaged)


@pytest.mark.faults
def test_a_case_whose_line_is_lost_is_described_again_and_keeps_its_runs(finished, tmp_path):
    def lose(data):
        lines = data.splitlines(keepends=True)
        numbers = [i for i, line in enumerate(lines) if b'"kind":"case"' in line]
        lines[numbers[1]] = b"?" + lines[numbers[1]][1:]
        return b"".join(lines)

    folder = of(finished, tmp_path / "lost", lose)
    assert len(load(folder).runs) == RUNS - 3
    said(verb("sweep", *SMALL, "--resume", folder), 0)
    assert len(load(folder).runs) == RUNS
    assert (folder / FILE).read_bytes().count(b'"kind":"run"') == RUNS, "runs were measured again"
