"""The machine of a sweep, and what of it must agree for times to be compared."""

from dataclasses import replace

import pytest

from tests.sweeps import environment

HERE = environment()


@pytest.mark.parametrize(
    "changes",
    [{"threads": 1}, {"processor": "B"}, {"cores": 64}, {"torch": "2.9"}, {"device": "H100"}],
)
def test_times_of_other_hardware_or_another_torch_are_not_compared(changes):
    assert replace(HERE, **changes).fingerprint != HERE.fingerprint


def test_what_varies_from_day_to_day_makes_no_other_machine():
    busy = replace(HERE, load=9.0, share=0.4, memory_bytes=1, host="b", notes={"a": "b"})
    assert busy.fingerprint == HERE.fingerprint
    assert dict(HERE.fingerprint)["processor"] == "Imaginary CPU @ 2.60 GHz"
