"""Further columns of queries and keys, which bring biases into torch's fused kernels."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from attnbench import attention as at
from attnbench.attention.kernels import decays
from tests.mechanisms.building import build

further_columns = at.further_columns
FORMS = [
    *(("forgetting", "sdpa", {}, dtype) for dtype in (torch.float32, torch.bfloat16)),
    ("sliding_window", "blocked", {"sink_logit": True}, torch.float32),
    ("sliding_window", "masked", {"sink_logit": True}, torch.float32),
    *(("grouped_query", form, {"sink_logit": True}, torch.float32) for form in ("eager", "sdpa")),
]


class Widths(TorchFunctionMode):
    """Notes the widths of all that fused kernels are called with."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is scaled_dot_product_attention:
            self.found |= {tensor.shape[-1] for tensor in args[:3]}
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("mechanism", "form", "options", "dtype"), FORMS)
@pytest.mark.parametrize("padded", [False, True])
def test_those_of_a_gpu_fill_its_widths_and_change_nothing(
    mechanism, form, options, dtype, padded, monkeypatch
):
    sizes = {"seq_len": 40, "width": 48, "causal": True, "padding": 0.25 * padded}
    built = build(mechanism, form, **sizes, **options).to(dtype).eval()
    x = torch.randn(2, 40, 48).to(dtype)
    mask = torch.arange(40).expand(2, -1) < 30 if padded else None
    expected = built(x, mask)
    for module in (at, decays):
        monkeypatch.setattr(
            module, "further_columns", lambda d, n, _: further_columns(d, n, "cuda")
        )
    with Widths() as widths:
        found = built(x, mask)
    assert all(width % 8 == 0 for width in widths.found), widths.found
    assert bool(widths.found) == (form != "eager")
    torch.testing.assert_close(found, expected)


def test_none_are_added_where_none_is_needed_or_a_cpu_computes():
    assert [further_columns(12, needed, "cpu") for needed in (0, 1, 3)] == [0, 1, 3]
    assert [further_columns(12, needed, "cuda") for needed in (0, 1, 3, 5)] == [0, 4, 4, 12]
