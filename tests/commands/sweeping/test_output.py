"""What is said before a sweep measures, and of one that measured nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

import attnbench
from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.folder import Fleet
from attnbench.commands.sweeping.invocation import Invocation
from attnbench.commands.sweeping.output import decided_text, interruption_message
from attnbench.commands.sweeping.planning import foretell
from attnbench.errors import CannotRun
from attnbench.records import EngineKind
from attnbench.records.storage.journal import Journal
from attnbench.records.storage.schema import Start
from tests import sweeps
from tests.commands.commands import here

SMALL = ("--tokens", "64", "--width", "16", "--heads", "2", "--quick", "--device", "cpu")


def test_a_dry_run_of_what_cannot_run_is_one_line_and_ends_as_the_sweep_would():
    made = sweeps.sweep(("fastformer",), lengths=(128,))
    plan = [replace(line, refusal="heads cannot share keys") for line in made.plan]
    asked = Invocation(options={}, shard=None, folder=Path(), resumes=False)
    with pytest.raises(CannotRun, match="none of 2 cases can run; fastformer:eager: heads"):
        foretell(asked, made.request, plan)
    foretell(asked, made.request, [*plan[1:], made.plan[0]])


def test_the_advice_after_a_signal_is_true(tmp_path):
    assert interruption_message(tmp_path / "missing") == "nothing was measured"
    fleets.write(tmp_path, Fleet(engine=EngineKind.SLURM, shards=4))
    continues = f"attnbench sweep --resume '{tmp_path}' continues"
    assert interruption_message(tmp_path) == f"jobs that were submitted go on; {continues}"
    (tmp_path / fleets.FILE).unlink()
    made = sweeps.sweep(("fastformer",), lengths=(128,))
    with Journal(tmp_path, Start(made.request, made.sessions[0])) as journal:
        journal.append(*made.cards, *made.plan)
    assert interruption_message(tmp_path) == f"what was measured is kept; {continues}"


def test_a_sweep_of_what_cannot_run_does_not_end_well(tmp_path):
    words = ("--models", "fastformer", "--causal", "--lengths", "16", "--out", tmp_path)
    done = here("sweep", *words, *SMALL, code=2)
    assert "attnbench: nothing was measured: 0 of 2 cases ran; fastformer:eager: " in done.stderr
    assert f"; attnbench report '{tmp_path}' lists all, and why" in done.stderr
    assert "figures and tables" not in done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {"sweep.jsonl", "sweep.toml"}


@pytest.mark.long
def test_a_sweep_decodes_what_can_and_says_why_the_rest_cannot(tmp_path):
    models = ("--models", "grouped_query[kv_heads=2],retention,fnet", "--batch", "3")
    small = ("--width", "16", "--heads", "2", "--quick", "--device", "cpu", "--out", tmp_path)
    done = here("sweep", "--mode", "decode", "--lengths", "1,16,64", *models, *small)
    assert {"decode.png", "state_decode.csv"} <= {file.name for file in tmp_path.iterdir()}
    assert not (tmp_path / "fig2.png").exists()
    assert "cannot decode: every output is a sum" in done.stdout
    cases = {
        (r["mechanism"], int(r["seq_len"])): r
        for r in attnbench.load(tmp_path).cases.to_dict("records")
    }
    for n in (1, 16, 64):
        step = cases["grouped_query", n]
        assert (step["batch"], step["causal"], step["outcome"]) == (3, True, "ok")
        assert step["state_bytes"] == 3 * 2 * n * 16 * 4
        assert cases["retention", n]["state_bytes"] == 3 * 16 * 8 * 2 * 4
    assert cases["grouped_query", 16]["core_flops"] * 4 == cases["grouped_query", 64]["core_flops"]


def test_what_is_decided_is_one_line_with_the_first_comparisons():
    where = "training at 128 tokens"
    said = [f"{name} is 1.42 to 1.47 times as fast as b" for name in "acd"]
    assert decided_text([], where) == ""
    assert decided_text(said[:1], where) == f"decided so far, in {where}: {said[0]}"
    assert decided_text(said, where).endswith(f": {said[0]}; {said[1]}; and 1 further comparison")
