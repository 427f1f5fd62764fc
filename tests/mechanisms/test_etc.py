"""ETC: which tokens read which."""

import pytest
import torch

from tests.mechanisms.building import build, reads


@pytest.mark.parametrize(("seq_len", "radius"), [(24, 4), (23, 4), (20, 1), (15, 30)])
def test_global_tokens_see_all_and_other_tokens_a_band(seq_len, radius):
    read = reads(build("etc", seq_len=seq_len, global_tokens=2, radius=radius), seq_len)
    i = torch.arange(seq_len)
    both = (i[:, None] < 2) | (i < 2)
    assert read.equal(both | ((i[:, None] - i).abs() <= radius))
