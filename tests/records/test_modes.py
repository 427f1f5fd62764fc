"""The modes of a measurement: found by name, and what follows from their rows."""

import pytest

from attnbench.records import PASSES, Level, Mode, modes


def test_every_mode_is_found_by_its_name():
    assert [*Mode] == [*modes.MODES] == ["training", "inference", "decode"]
    assert [modes.find(mode).title for mode in Mode] == ["Training", "Inference", "Decode"]


@pytest.mark.parametrize("name", ["", "both", "Training", "decode "])
def test_what_is_no_mode_is_refused_with_those_that_are(name):
    with pytest.raises(ValueError, match="is not a mode; modes: training, inference, decode"):
        modes.find(name)


def test_passes_are_over_whole_sequences_and_steps_have_one_level():
    assert PASSES == modes.BOTH == ("training", "inference")
    for mode in Mode:
        facts = modes.find(mode)
        assert facts.steps == (mode not in PASSES)
        assert bool(facts.only_level) == bool(facts.only_level_reason) == facts.steps
    assert modes.find("decode").only_level == Level.ATTENTION


def test_only_what_trains_needs_more_than_one_copy_of_the_parameters():
    for facts in modes.MODES.values():
        assert facts.trains == (facts.copies > 1) == (facts.parameter_moves > 1)
        assert facts.trains == (facts.forward_passes > 1) == bool(facts.work)
