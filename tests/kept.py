"""What forward passes keep for their backward passes."""

import torch


def kept_bytes(call, *inputs):
    """Bytes of the distinct tensors that the graph of a call keeps, and its output."""
    total = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        total[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = call(*inputs)
    return sum(total.values()), output


def assert_linear(kept):
    """That the bytes kept at a length grow in proportion to it, apart from a constant part."""
    short, middle, long = (kept(seq_len) for seq_len in (512, 1024, 2048))
    assert middle > short
    assert long - middle == 2 * (middle - short)
