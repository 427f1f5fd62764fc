"""How our default forms compare with public implementations: ratios from an interleaved run.

    python -W ignore -m tests.benchmarks.speed [--models NAME,…] [--seconds 4] > reports/speed.md

Level `attention`, D = 256, 16 heads, float32, one thread, process time. Ours and theirs alternate
iteration by iteration; the ratio (theirs over ours; above 1 ours is faster) is the median over
pairs, with a 95 % confidence interval from order statistics.
"""

import argparse
import statistics
import time

import torch

from attnbench.records import Causality, Level, Mode, Workload
from attnbench.registry import card
from attnbench.workloads.presets import preset
from tests.benchmarks.header import begin
from tests.benchmarks.modern_peers import modern_pairs
from tests.benchmarks.peers import HEADS, WIDTH, pairs
from tests.benchmarks.survey_peers import survey_pairs

PACKAGES = (
    *("axial_attention", "compressive-transformer-pytorch", "entmax", "fast-transformer-pytorch"),
    *("isab-pytorch", "linear-attention-transformer", "linformer", "local-attention"),
    *("memory_compressed_attention", "nystrom-attention", "performer-pytorch", "reformer-pytorch"),
    *("routing_transformer", "sinkhorn_transformer", "transformers", "yet-another-retnet"),
)
FEWEST = 7


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="")
    parser.add_argument("--lengths", default="512,2048,8192")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=4.0, help="Time per comparison.")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    command = "python -W ignore -m tests.benchmarks.speed"
    begin("Speed against public implementations", __doc__, command, "torch", *PACKAGES)
    print("| mechanism:form | against | B × N | mode | theirs / ours | 95 % CI | pairs |")
    print("|---|---|---:|---|---:|---|---:|")
    for name, label, build in (*pairs(), *survey_pairs(), *modern_pairs()):
        if asked.models and name not in asked.models.split(","):
            continue
        for seq_len in map(int, asked.lengths.split(",")):
            for mode in Mode:
                print(row(name, label, build, seq_len, mode, asked), flush=True)


def row(name, label, build, seq_len, mode, asked):
    batch = max(1, asked.tokens // seq_len)
    form, module = ours(name, batch, seq_len, mode)
    head = f"| {name}:{form} | {label} | {batch} × {seq_len:,} | {mode} |"
    try:
        peer = build(seq_len)
    except ImportError as error:
        return f"{head} not installed: {error.name} | | |"
    x = torch.randn(batch, seq_len, WIDTH)
    ratios = compare(module, peer, x, mode, asked.seconds)
    low, high = interval(ratios)
    return f"{head} {statistics.median(ratios):.2f} | {low:.2f} to {high:.2f} | {len(ratios)} |"


def ours(name, batch, seq_len, mode):
    """The default form of our mechanism, in the sizes of the default preset."""
    mechanism = card(name)
    workload = Workload(
        batch=batch,
        seq_len=seq_len,
        width=WIDTH,
        heads=HEADS,
        level=Level.ATTENTION,
        mode=mode,
        causal=mechanism.causality is Causality.ALWAYS,
    )
    config = mechanism.configure(preset("mind-classification").options(name))
    form = mechanism.default(config, workload)
    return form, mechanism.forms[form](config, workload)


def compare(module, peer, x, mode, seconds):
    """Ratios of process time, theirs over ours, of alternating iterations."""
    turn = forward if mode is Mode.INFERENCE else forward_backward
    for attention in (module, peer):
        attention.train(mode is Mode.TRAINING)
        turn(attention, x)
    ratios, end = [], time.monotonic() + seconds
    while len(ratios) < FEWEST or time.monotonic() < end:
        order = (module, peer) if len(ratios) % 2 else (peer, module)
        took = {attention: turn(attention, x) for attention in order}
        ratios.append(took[peer] / took[module])
    return ratios


def forward(module, x):
    begun = time.process_time()
    with torch.no_grad():
        module(x)
    return time.process_time() - begun


def forward_backward(module, x):
    x = x.clone().requires_grad_()
    for parameter in module.parameters():
        parameter.grad = None
    begun = time.process_time()
    y = module(x)
    y.backward(x.detach())
    return time.process_time() - begun


def interval(ratios):
    """The 95 % confidence interval of the median, from order statistics."""
    ordered, reach = sorted(ratios), 0.98 * len(ratios) ** 0.5
    middle = len(ratios) / 2
    return ordered[max(0, int(middle - reach))], ordered[min(len(ratios) - 1, int(middle + reach))]


if __name__ == "__main__":
    main()
