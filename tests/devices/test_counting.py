"""Which operators of an iteration are counted, which bytes they move, and in which types."""

import pytest
import torch

from attnbench.devices.counting import Counter, touched_bytes


def test_the_counter_does_not_count_views():
    x = torch.randn(8, 4)
    with Counter() as counter:
        x.view(4, 8).T[1:].unsqueeze(0)
        assert counter.operators == 0
        x + 1
    assert counter.operators == 1
    assert counter.moved_bytes == 2 * 8 * 4 * 4
    with Counter() as counter:
        x + torch.ones(1, 4).expand(8, 4)
    assert counter.moved_bytes == 2 * 8 * 4 * 4 + 2 * 4 * 4


def test_what_is_changed_in_place_is_an_operator():
    x = torch.randn(8, 4)
    with Counter() as counter:
        x.mul_(2)
        x.T.add_(1)
    assert counter.values == {"operators": 2, "moved_bytes": 4 * 8 * 4 * 4}


@pytest.mark.parametrize(
    ("tensor", "touched"),
    [
        (torch.ones(3, 5), 60),
        (torch.ones(3, 5, dtype=torch.float64)[:, ::2], 72),
        (torch.ones(1, 5).expand(3, 5), 20),
        (torch.ones(3, 1).expand(3, 5), 12),
        (torch.ones(()).expand(0, 5), 0),
        (torch.eye(3).to_sparse(), 0),
    ],
    ids=["whole", "every other", "rows", "columns", "empty", "sparse"],
)
def test_a_number_that_stands_for_several_is_touched_once(tensor, touched):
    assert touched_bytes(tensor) == touched


def test_types_are_those_of_results_that_are_real_numbers():
    x = torch.ones(3)
    with Counter() as counter:
        x.double() + 1
        x.bfloat16().argmax()
    assert counter.notes == {"number_types": "bfloat16, float64"}
    with Counter() as counter:
        torch.arange(3) + 1
    assert counter.notes == {}
