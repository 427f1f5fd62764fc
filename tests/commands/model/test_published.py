"""Public configurations: each read to the byte, or refused by the name of a field."""

import re

import pytest

from tests.commands.model.configurations_stated import (
    CALCULATORS,
    LLAMA_3,
    REPORTS,
    STATED,
    hybrid,
)
from tests.commands.model.published import (
    DIFFERENCES,
    FIXTURES,
    answered,
    by_fixture,
    corrections,
    expected,
    masks,
    read,
    reasons,
    stored,
)

pytestmark = pytest.mark.long
MOST = 0.12  # of a checkpoint that a text model's parameters leave out, such as encoders


def test_the_readings_are_those_of_the_fixtures():
    found = {each["repo"]: read(each["reading"] or [[1, "none"]]) for each in stored()}
    for repo, total in FIXTURES.items():
        assert by_fixture(found[repo]) == total, repo


def test_at_least_a_hundred_files_are_read_and_none_is_wrong_in_silence(tmp_path):
    files = stored()
    assert len(files) == 122
    wrong = {}
    refused = {}
    for each in files:
        said = answered(each["config"], tmp_path)
        if said.refused:
            refused[each["repo"]] = said.refused
            continue
        reading = read(each["reading"]) if each["reading"] else None
        right = DIFFERENCES.get(each["repo"], expected(reading) if reading else ())[:2]
        if (said.per_token, said.once) != tuple(right):
            wrong[each["repo"]] = (said[:3], right)
    assert not wrong
    assert len(files) - len(refused) >= 101
    assert all(re.search(r"'\w[\w.-]*'", reason) for reason in refused.values()), refused


def test_what_the_project_reads_otherwise_is_otherwise():
    readings = {each["repo"]: each["reading"] for each in stored()}
    for repo, (per_token, once, why) in DIFFERENCES.items():
        reading = read(readings[repo]) if readings[repo] else None
        assert why
        assert reading is None or expected(reading) != (per_token, once), repo


def test_parameters_are_those_of_the_checkpoints_or_their_differences_have_a_reason(tmp_path):
    compared = 0
    for each in stored():
        said = answered(each["config"], tmp_path)
        numbers = sum((each["parameters"] or {}).values())
        if not said.counted or not numbers:
            continue
        compared += 1
        more = numbers - said.counted
        why = list(reasons(each["config"], said))
        if not why:
            assert more in (0, corrections(each["config"])), (each["repo"], more)
        elif masks(each["config"]):
            assert more == masks(each["config"]), (each["repo"], more)
        elif any("scales" in reason for reason in why):
            whole = max(each["parameters"], key=each["parameters"].get) in ("BF16", "F8_E4M3")
            assert not whole or 0 <= more < MOST * numbers, (each["repo"], more)
        else:
            assert 0 < more < MOST * numbers, (each["repo"], more)
    assert compared >= 85


def test_what_runs_its_layers_several_times_is_refused(tmp_path):
    """Which keeps a cache for each time, as Ouro does."""
    ouro = next(each["config"] for each in stored() if each["config"].get("model_type") == "ouro")
    assert "'total_ut_steps' is not read here" in answered(ouro, tmp_path).refused


def every(tmp_path):
    """What is said of all files, and of those whose bytes others state."""
    files = {each["repo"]: each["config"] for each in stored()} | LLAMA_3
    files["tiiuae/Falcon-H1-1.5B"] = hybrid()
    return {repo: answered(values, tmp_path) for repo, values in files.items()}


def test_parameters_are_those_that_publishers_state(tmp_path):
    said = every(tmp_path)
    assert len({one.repo for one in REPORTS}) >= 10
    for one in REPORTS:
        found = said[one.repo]
        assert found.counted / 1e9 == pytest.approx(one.total, rel=one.off), one.repo
        if one.active:
            active = (found.active - one.tables * found.embedding) / 1e9
            rounded = 0.5 if isinstance(one.active, int) else 0
            assert active == pytest.approx(one.active, rel=0.02, abs=rounded), one.repo


def test_bytes_are_those_that_others_state_or_log(tmp_path):
    said = every(tmp_path)
    for one in STATED:
        ours = one.ours(said[one.repo].per_token, said[one.repo].once)
        assert ours * one.factor == pytest.approx(one.stated, rel=one.off), one.repo
        assert one.factor == 1 or one.why


def test_calculators_differ_for_their_reasons(tmp_path):
    said = every(tmp_path)
    plain = "meta-llama/Llama-3.1-8B"
    cookbook, by_width, latents = CALCULATORS
    assert by_width.per_token(LLAMA_3[plain]) == said[plain].per_token
    assert latents.per_token(LLAMA_3[plain]) == said[plain].per_token
    assert cookbook.per_token(LLAMA_3[plain]) == 2 * said[plain].per_token
