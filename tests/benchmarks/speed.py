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
import torch.nn.functional as F
from torch import nn

from attnbench.contract import merge
from attnbench.records import Causality, Level, Mode, Workload
from attnbench.registry import card, names
from attnbench.workloads.presets import preset
from tests.benchmarks.header import begin

WIDTH, HEADS = 256, 16
BARE = "bare kernel"  # of torch, between the same projections
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
    versions = dict.fromkeys(module.package for *_, module in pairs() if module)
    begin("Speed against public implementations", __doc__, command, *versions)
    print("| mechanism:form | against | B × N | mode | theirs / ours | 95 % CI | pairs |")
    print("|---|---|---:|---|---:|---|---:|")
    for name, peer, _ in pairs():
        if asked.models and name not in asked.models.split(","):
            continue
        for seq_len in map(int, asked.lengths.split(",")):
            for mode in Mode:
                print(row(name, peer, seq_len, mode, asked), flush=True)


class Bare(nn.Module):
    """Four projections around torch's fused attention, and nothing else."""

    def __init__(self):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (m(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for m in self.maps[:3])
        return self.maps[3](merge(F.scaled_dot_product_attention(q, k, v)))


def pairs():
    """Each mechanism with each package that computes it: names and the package's form."""
    yield "transformer", BARE, None
    for name in names():
        forms = card(name).forms.items()
        yield from ((name, form, module) for form, module in forms if module.package)


def row(name, peer, seq_len, mode, asked):
    mechanism, batch = card(name), max(1, asked.tokens // seq_len)
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
    head = f"| {name}:{form} | {peer} | {batch} × {seq_len:,} | {mode} |"
    if peer != BARE and (reason := mechanism.refusal(peer, config, workload)):
        return f"{head} {reason} | | |"
    module = mechanism.forms[form](config, workload)
    peer = Bare() if peer == BARE else mechanism.forms[peer](config, workload)
    x = torch.randn(batch, seq_len, WIDTH)
    ratios = compare(module, peer, x, mode, asked.seconds)
    low, high = interval(ratios)
    return f"{head} {statistics.median(ratios):.2f} | {low:.2f} to {high:.2f} | {len(ratios)} |"


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
