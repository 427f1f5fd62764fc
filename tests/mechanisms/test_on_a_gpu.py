"""What every default form would ask of a GPU: kernels for attention, launches, and no waiting."""

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend

from attnbench.attention.kernels import recurrence
from attnbench.attention.kernels.convolution import Convolution
from attnbench.measuring.planner import predicted_bytes
from attnbench.mechanisms.catalogue import registry
from attnbench.records import Mode
from tests.mechanisms import building
from tests.mechanisms.pretended import (
    WITHOUT_DATA,
    Launches,
    PretendedGpu,
    iterated,
    peak_bytes,
    workload,
)

TOKENS = 1 << 17
QUEUE = 1000  # launches that a GPU's queue holds: beyond them an iteration takes the host's time
LENGTHS = (17, *(pytest.param(n, marks=pytest.mark.long) for n in (130, 512)), 1000)
DECODING = [name for name in registry.names() if not registry.card(name).no_decode_reason]
WAITS = [name for name in registry.names() if registry.card(name).waits]
FROM = {"native_sparse": 1025, "smart_bird": 160}  # tokens with which they do


@pytest.fixture(autouse=True)
def without_triton(monkeypatch):
    """Kernels that are compiled for a GPU cannot run on tensors without data."""
    monkeypatch.setattr("attnbench.devices.kinds.cuda.find_spec", lambda name: None)


@pytest.fixture(autouse=True)
def recomputing(monkeypatch):
    """No generator of random numbers is kept for a device without data."""
    monkeypatch.setattr(torch.utils.checkpoint, "_infer_device_type", lambda *_: "cpu")


def waiting(name, seq_len):
    """Skips what has to read numbers of tensors, where it does."""
    if name in WAITS and seq_len >= FROM.get(name, 0):
        pytest.skip(registry.card(name).waits)


@pytest.mark.parametrize("name", WAITS)
def test_what_says_that_the_host_waits_reads_numbers_of_the_gpu(name):
    """All others are tried below, on tensors without numbers."""
    with pytest.raises((NotImplementedError, RuntimeError), match=r"meta|Meta|data-dependent"):
        iterated(name, workload(name, 1200, Mode.INFERENCE))


@pytest.mark.parametrize("padding", [0, 0.3], ids=["", "padded"])
@pytest.mark.parametrize("seq_len", LENGTHS)
@pytest.mark.parametrize("name", registry.names())
def test_fused_attention_gets_what_kernels_take(name, seq_len, padding):
    waiting(name, seq_len)
    w = workload(name, seq_len, Mode.INFERENCE, padding=padding)
    assert iterated(name, w).faults() == []


@pytest.mark.parametrize("seq_len", [16, 256])
@pytest.mark.parametrize("name", ["routing_transformer", "sinkhorn", "sparse_transformer"])
def test_short_sequences_make_no_launch_too_large(name, seq_len):
    """Blocks are sequences of their own: with 131,072 tokens they are more than a launch takes."""
    found = iterated(name, workload(name, seq_len, Mode.INFERENCE, TOKENS // seq_len))
    assert found.faults() == []


@pytest.mark.parametrize("seq_len", LENGTHS)
@pytest.mark.parametrize("name", DECODING)
def test_a_step_gives_fused_attention_the_cache_as_it_is(name, seq_len):
    waiting(name, seq_len)
    found = iterated(name, workload(name, seq_len, Mode.DECODE))
    assert found.faults() == []
    assert not any(call.shared for call in found.fused)


@pytest.mark.parametrize("padding", [0, 0.3], ids=["", "padded"])
@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.DECODE])
@pytest.mark.parametrize("name", ["grouped_query", "indexed", "latent", "native_sparse"])
def test_no_heads_are_shared_where_torch_would_store_their_weights(name, mode, padding):
    if mode is Mode.DECODE and padding:
        pytest.skip("a prompt is measured without padding")
    found = iterated(name, workload(name, 130, mode, padding=padding), SDPBackend.MATH)
    assert found.faults() == []
    assert found.fused or mode is Mode.DECODE
    assert not any(call.shared for call in found.fused)


@pytest.mark.long
@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING])
@pytest.mark.parametrize("seq_len", [512, TOKENS])
@pytest.mark.parametrize("name", registry.names())
def test_an_iteration_fits_the_queue_or_the_card_says_why_not(name, seq_len, mode):
    waiting(name, seq_len)
    if name == "sinkhorn" and mode is Mode.TRAINING:
        pytest.skip("torch compares what it computes again, which tensors without data do not bear")
    if reason := registry.card(name).launches:
        pytest.skip(reason)
    assert iterated(name, workload(name, seq_len, mode, TOKENS // seq_len)).launches < QUEUE


@pytest.mark.parametrize("seq_len", [pytest.param(130, marks=pytest.mark.long), 300])
@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.DECODE])
@pytest.mark.parametrize("name", registry.names())
def test_no_iteration_waits_for_the_gpu(name, mode, seq_len):
    """Nor does it copy from the host; what needs the size of a choice fails without data."""
    waiting(name, seq_len)
    if mode is Mode.DECODE and name not in DECODING:
        pytest.skip("does not decode")
    if name == "sinkhorn":
        mode = Mode.INFERENCE  # what torch computes again it compares, and that needs data
    padding = 0 if mode is Mode.DECODE else 0.3
    assert iterated(name, workload(name, seq_len, mode, padding=padding)).waits == set()


def test_waits_that_need_no_data_are_found():
    x, chosen = (torch.empty(8, dtype=t, device=WITHOUT_DATA) for t in (torch.float, torch.bool))

    def store():
        x[chosen] = 1.0

    waiting_calls = (
        store,
        lambda: torch.ones(2).to(x),
        lambda: torch.ones(2).to("cuda"),
        lambda: x.copy_(torch.ones(8)),
        lambda: torch.tensor([1.0, 2.0], device=x.device),
        lambda: torch.tensor(1.0, device="cuda:0"),
        lambda: torch.as_tensor(np.ones(3), device=x.device),
        lambda: x.new_tensor([1, 2]),
        lambda: torch.linalg.inv(x.view(2, 2, 2)),
        lambda: x.bincount(),
    )
    others = (
        x.exp,
        lambda: torch.full((3,), 2.0, device=x.device),
        lambda: torch.arange(3, device=x.device),
        lambda: torch.tensor([1.0, 2.0]),
        lambda: torch.as_tensor(x),
        lambda: x.masked_fill(chosen, 1.0),
    )
    assert [waits_of(call) for call in waiting_calls] == [True] * len(waiting_calls)
    assert [waits_of(call) for call in others] == [False] * len(others)


def waits_of(call):
    """Whether the host waits for the GPU within a call, or asks for numbers that are not there."""
    with PretendedGpu() as gpu, Launches() as launches:
        try:
            call()
        except (NotImplementedError, RuntimeError):
            return True
    return bool(launches.waits | gpu.waits)


@pytest.mark.parametrize("name", ["moba", "native_sparse"])
def test_steps_that_choose_blocks_wait_for_nothing(name):
    """Though the prompt does, of which `eager` makes the same state without waiting."""
    card = registry.card(name)
    w = workload(name, 1200, Mode.DECODE)
    with WITHOUT_DATA:
        eager, module = (card.forms[form](card.config(), w) for form in ("eager", "blocked"))
        x = torch.empty(w.batch, w.seq_len, w.width)
    with PretendedGpu() as gpu, torch.no_grad():
        _, state = eager.prefill(x[:, :-1], eager.start(w.batch, w.seq_len))
        with Launches() as launches:
            module.step(x[:, -1:], state)
    assert card.default_form(card.config(), w) == "blocked"
    assert launches.waits | gpu.waits == set()


@pytest.mark.parametrize("name", registry.names())
def test_no_pass_asks_for_the_states_of_generators(name, monkeypatch):
    """As torch's checkpoints do, unless they are told not to: no CUDA graph captures that."""
    monkeypatch.setattr(recurrence, "logits_at_once", lambda device: 64)
    monkeypatch.setattr(torch, "get_rng_state", lambda: pytest.fail("the state of a generator"))
    card = registry.card(name)
    w = building.workload(name, seq_len=40, mode=Mode.TRAINING)
    plain = [form for form in card.own_forms if not card.forms[form].compiles]
    for form in plain:
        if card.refusal(form, card.config(), w) is None:
            module = card.forms[form](card.config(), w)
            module(torch.randn(2, 40, 16, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("name", ["compressive_transformer", "etc", "transformer_xl"])
def test_segments_fill_the_gpu_in_few_launches(name):
    """At the size of a cache there would be 5,000 to 20,000."""
    assert iterated(name, workload(name, TOKENS, Mode.INFERENCE, 1)).launches < QUEUE


def test_a_convolution_fills_the_gpu_in_few_launches():
    x = torch.empty(1, TOKENS, 768, device=WITHOUT_DATA)
    taps, before = torch.empty(4, 768, device=WITHOUT_DATA), x[:, :3]
    with PretendedGpu(), Launches() as launches, torch.no_grad():
        Convolution.apply(x, before, taps, None)
    assert launches.count < 20


@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING])
@pytest.mark.parametrize(
    "name", ["gated_delta_net", "gated_linear", "kimi_delta", "mamba2", "reformer", "rwkv7"]
)
def test_what_goes_in_parts_is_predicted_to_take_the_memory_of_a_gpus_parts(name, mode):
    """They fill a GPU, where those of a CPU fit a cache; some are of float64 there."""
    assert 0.4 < of_prediction(name, workload(name, 512, mode, 64)) < 1.3


@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING])
@pytest.mark.parametrize(
    ("name", "seq_len"),
    [("axial", 4096), pytest.param("indexed", 1 << 15, marks=pytest.mark.long)],
)
def test_sums_between_axes_and_scores_of_a_choice_are_predicted(name, seq_len, mode):
    """The scores of a long sequence's choice are of a part that fills a GPU."""
    assert 0.45 < of_prediction(name, workload(name, seq_len, mode, 1)) < 1.1


def of_prediction(name, w):
    """The peak of the default form over what is predicted of it."""
    card = registry.card(name)
    form = card.forms[card.default_form(card.config(), w)]
    elements = form.elements(card.config(), w)
    predicted = predicted_bytes(elements, card.parameters(card.config(), w), w, 1)
    return peak_bytes(name, w) / predicted
