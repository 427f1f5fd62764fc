"""The maker's peaks, against what follows from the chips themselves."""

import pytest

from attnbench.devices import nominal

# multiprocessors, boost clock in Hz, FLOP of a multiprocessor in a cycle: float32, tensor cores
CHIPS = {
    "NVIDIA A100-SXM4-80GB": (108, 1.41e9, 128, 2048),
    "NVIDIA H100 80GB HBM3": (132, 1.98e9, 256, 4096 * 1.83 / 1.98),  # at a lower clock
    "NVIDIA L4": (58, 2.04e9, 256, 1024),
    "NVIDIA L40S": (142, 2.52e9, 256, 1024),
}


@pytest.mark.parametrize("title", CHIPS)
def test_a_peak_is_what_all_multiprocessors_do_in_a_cycle(title):
    count, clock, vector, tensor = CHIPS[title]
    found = nominal.rates(title)
    assert found["float32"] == pytest.approx(count * clock * vector, rel=0.02)
    assert found["bfloat16"] == found["float16"] == pytest.approx(count * clock * tensor, rel=0.03)
    assert found["tf32"] == pytest.approx(found["bfloat16"] / 2, rel=0.02)


def test_every_product_says_what_its_memory_does():
    for title in nominal.PRODUCTS:
        found = nominal.rates(title)
        assert 1e11 < found["copy"] < 1e13
        assert found["float32"] < found["tf32"] < found["bfloat16"]


def test_of_another_product_nothing_is_stated():
    assert nominal.rates("Emulated GPU") == {}
    assert "float64" not in nominal.rates("NVIDIA L4")
