"""How our default forms compare with public implementations: ratios from an interleaved run.

    python -W ignore -m tests.benchmarks.speed [--models NAME,…] [--seconds 4] > reports/speed.md

Level `attention`, D = 256, 16 heads, float32; on a CPU one thread and process time, on a GPU the
time between device events. In mode `decode` one step at a context of N tokens. Ours and theirs
alternate iteration by iteration; the ratio (theirs over ours; above 1 ours is faster) is the median
over pairs, with a 95 % confidence interval from order statistics.
"""

import argparse
import gc
import shlex
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from attnbench.attention.contract import merge
from attnbench.catalogue.registry import names
from attnbench.devices.finding import choose
from attnbench.devices.timing import sample
from attnbench.measure.server import described
from attnbench.records import PASSES, Causality, Clock, Level, Mode, Workload
from attnbench.workloads.presets import preset
from tests.benchmarks.header import begin
from tests.oracles import card

WIDTH, HEADS = 256, 16
BARE = "bare kernel"  # of torch, between the same projections
FEWEST = 7
REHEARSED = 3  # pairs before those that count: a GPU's stopwatch learns from them


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="")
    parser.add_argument("--lengths", default="512,2048,8192")
    parser.add_argument("--tokens", type=int, help="Default: those of a sweep on the device.")
    parser.add_argument("--seconds", type=float, default=4.0, help="Time per comparison.")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    device = choose(asked.device)
    device.select()
    torch.set_num_threads(1)
    command = shlex.join(["python", "-W", "ignore", "-m", "tests.benchmarks.speed", *sys.argv[1:]])
    chosen = asked.models.split(",") if asked.models else names()
    versions = dict.fromkeys(form.package for name in chosen for form in card(name).forms.values())
    title = "Speed against public implementations"
    begin(title, __doc__, command, *filter(None, versions), device=device)
    print("| mechanism:form | against | B × N | mode | theirs / ours | 95 % CI | pairs |")
    print("|---|---|---:|---|---:|---|---:|")
    for name, label, modes in pairs():
        if name not in chosen:
            continue
        for seq_len in map(int, asked.lengths.split(",")):
            for mode in modes:
                print(row(name, label, seq_len, mode, device, asked), flush=True)
                gc.collect()
                device.release()


class Step(nn.Module):
    """One step, always from the state that the same N − 1 tokens left."""

    def __init__(self, attention, seq_len):
        super().__init__()
        self.attention = attention
        prompt = torch.randn(1, seq_len - 1, WIDTH, device=attention.output.weight.device)
        with torch.no_grad():
            _, self.state = attention.prefill(prompt, attention.start(1, seq_len))

    def forward(self, x):
        return self.attention.step(x, self.state)[0]


class Bare(nn.Module):
    """Four projections around torch's fused attention, and nothing else."""

    def __init__(self):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (m(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for m in self.maps[:3])
        return self.maps[3](merge(F.scaled_dot_product_attention(q, k, v)))


def pairs():
    """Each mechanism, what its default form runs against, and the modes in which it does."""
    yield "transformer", BARE, PASSES
    # what most models do, copying keys: a form of ours
    yield "grouped_query", "repeat", (*PASSES, Mode.DECODE)
    for name in names():
        forms = card(name).forms.items()
        yield from ((name, label, PASSES) for label, form in forms if form.package)


def row(name, label, seq_len, mode, device, asked):
    """A row of the table; where a public implementation does not run here, with the reason."""
    mechanism, decode = card(name), mode is Mode.DECODE
    batch = 1 if decode else max(1, (asked.tokens or device.tokens) // seq_len)
    workload = Workload(
        batch=batch,
        seq_len=seq_len,
        width=WIDTH,
        heads=HEADS,
        level=Level.ATTENTION,
        mode=mode,
        device=device.name,
        causal=decode or mechanism.causality is Causality.ALWAYS,
    )
    config = mechanism.configure(preset("mind-classification").options(name))
    form = mechanism.default_form(config, workload)
    head = f"| {name}:{form} | {label} | {batch} × {seq_len:,} | {mode} |"
    if label != BARE and (reason := mechanism.refusal(label, config, workload)):
        return f"{head} {reason} | | |"
    training = mode is Mode.TRAINING
    try:
        theirs = Bare() if label == BARE else mechanism.forms[label](config, workload)
        both = (mechanism.forms[form](config, workload), theirs)
        module, theirs = (m.to(device.torch_name).train(training) for m in both)
        if decode:
            module, theirs = Step(module, seq_len), Step(theirs, seq_len)
        x = torch.randn(batch, 1 if decode else seq_len, WIDTH, device=device.torch_name)
        ratios = compare(module, theirs, x, training, device, asked.seconds)
    except Exception as error:  # another version, no kernel for the device, or out of memory
        return f"{head} does not run: {described(error).replace('|', '/')} | | |"
    low, high = interval(ratios)
    return f"{head} {statistics.median(ratios):.2f} | {low:.2f} to {high:.2f} | {len(ratios)} |"


def compare(module, peer, x, training, device, seconds):
    """Ratios of time, theirs over ours, of alternating iterations."""

    def timed(attention):
        return iteration(attention, x, training), device.stopwatch(clock=Clock.CPU)

    turns = {attention: timed(attention) for attention in (module, peer)}
    ratios, end = [], time.monotonic() + seconds
    while len(ratios) < REHEARSED + FEWEST or time.monotonic() < end:
        order = (module, peer) if len(ratios) % 2 else (peer, module)
        took = {attention: turn(attention, x, *turns[attention]) for attention in order}
        ratios.append(took[peer] / took[module])
    return ratios[REHEARSED:]


def turn(attention, x, iterate, watch):
    """Seconds of one iteration: device time, or CPU time where the device has no clock."""

    def clear():
        for tensor in (x, *attention.parameters()):
            tensor.grad = None

    return sample(iterate, clear, watch, 1).seconds


def iteration(attention, x, training):
    """A forward pass, or in training one with the backward pass, as stopwatches time it."""
    x.requires_grad_(training)
    gradient = x.detach()

    def infer(lap):
        with torch.no_grad():
            attention(x)
        lap("forward")

    def train(lap):
        y = attention(x)
        lap("forward")
        y.backward(gradient)
        lap("backward")

    return train if training else infer


def interval(ratios):
    """The 95 % confidence interval of the median, from order statistics."""
    ordered, reach = sorted(ratios), 0.98 * len(ratios) ** 0.5
    middle = len(ratios) / 2
    return ordered[max(0, int(middle - reach))], ordered[min(len(ratios) - 1, int(middle + reach))]


if __name__ == "__main__":
    main()
