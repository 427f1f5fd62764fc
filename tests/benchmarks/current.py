"""How mechanisms of current models compare with transformers, and with reading every key.

    python -W ignore -m tests.benchmarks.current [--rows 0,1,…] > reports/speed-current.md

Level `attention`, D = 256, 16 heads, B = 1, float32, one thread and process time. The two of a row
alternate iteration by iteration; the ratio (the other over ours; above 1 ours is faster) is the
median over pairs. Memory is the largest that was allocated at a time during one forward and, in
training, backward pass: that of ours over that of the other.
"""

import argparse
import statistics
import sys

import torch
from torch.autograd.profiler import profile

from attnbench.catalogue.registry import card
from attnbench.devices import memory
from attnbench.records import Clock, Level, Mode, Selection, Workload
from tests.benchmarks.header import CPU, begin
from tests.benchmarks.speed import HEADS, WIDTH, iteration, turn

# two heads of values for each of keys, as Qwen3-Next has them
QWEN = tuple(f"gated_delta_net:{form}[value_heads=32]" for form in ("chunked", "transformers"))

# ours, the other, N, mode, pairs
ROWS = (
    ("gated_delta_net:chunked", "gated_delta_net:transformers", 512, Mode.TRAINING, 9),
    ("gated_delta_net:chunked", "gated_delta_net:transformers", 2048, Mode.TRAINING, 9),
    ("gated_delta_net:chunked", "gated_delta_net:transformers", 8192, Mode.TRAINING, 5),
    ("gated_delta_net:chunked", "gated_delta_net:transformers", 2048, Mode.INFERENCE, 9),
    ("gated_delta_net:chunked", "gated_delta_net:transformers", 8192, Mode.INFERENCE, 5),
    (*QWEN, 2048, Mode.TRAINING, 5),
    ("kimi_delta:chunked", "kimi_delta:transformers", 2048, Mode.TRAINING, 3),
    ("kimi_delta:chunked", "kimi_delta:transformers", 2048, Mode.INFERENCE, 5),
    ("kimi_delta:chunked", "kimi_delta:transformers", 8192, Mode.TRAINING, 1),
    ("lightning:chunked", "lightning:transformers", 2048, Mode.TRAINING, 5),
    ("lightning:chunked", "lightning:transformers", 2048, Mode.INFERENCE, 5),
    ("differential:sdpa", "differential:transformers", 2048, Mode.TRAINING, 5),
    ("differential:sdpa", "differential:transformers", 2048, Mode.INFERENCE, 5),
    ("indexed:blocked", "grouped_query:sdpa", 8192, Mode.INFERENCE, 3),
    ("indexed:blocked", "grouped_query:sdpa", 32768, Mode.INFERENCE, 3),
    ("indexed:blocked[kv_rank=64]", "latent:sdpa", 32768, Mode.INFERENCE, 3),
    ("moba:blocked", "transformer:sdpa", 32768, Mode.INFERENCE, 1),
    ("native_sparse:blocked", "grouped_query:sdpa", 32768, Mode.INFERENCE, 1),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", help="Numbers of rows, from 0 on. Default: all.")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    command = " ".join(["python -W ignore -m tests.benchmarks.current", *sys.argv[1:]])
    begin("Mechanisms of current models", __doc__, command, "transformers")
    print("| ours | the other | N | mode | time | range | pairs | memory |")
    print("|---|---|---:|---|---:|---|---:|---:|")
    for number in map(int, asked.rows.split(",")) if asked.rows else range(len(ROWS)):
        print(row(*ROWS[number]), flush=True)


def row(ours, other, seq_len, mode, pairs):
    training, both = mode is Mode.TRAINING, []
    for name in (ours, other):
        chosen, sizes = Selection.read(name), {"seq_len": seq_len, "width": WIDTH, "heads": HEADS}
        w = Workload(batch=1, **sizes, level=Level.ATTENTION, mode=mode, causal=True)
        found = card(chosen.name)
        config = found.configure(dict(chosen.options))
        both.append(found.forms[chosen.form](config, w).train(training))
    x = torch.randn(1, seq_len, WIDTH)
    turns = [(m, x, iteration(m, x, training), CPU.stopwatch(clock=Clock.CPU)) for m in both]
    peaks, ratios = [peak(*one[:3]) for one in turns], []
    for pair in range(pairs):
        order = turns[:: 1 if pair % 2 else -1]
        took = {id(one[0]): turn(*one) for one in order}
        ratios.append(took[id(both[1])] / took[id(both[0])])
    time = f"{statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f}"
    head = f"| {ours} | {other} | {seq_len:,} | {mode}"
    return f"{head} | {time} | {pairs} | {peaks[0] / peaks[1]:.3f} |"


def peak(attention, x, iterate):
    """Bytes allocated at a time beyond those before an iteration, which it also warms up."""
    with profile(profile_memory=True) as events:
        memory.mark("start")
        iterate(lambda part: None)
    for tensor in (x, *attention.parameters()):
        tensor.grad = None
    return memory.peaks(events.kineto_results.events())["allocated_delta_bytes"]


if __name__ == "__main__":
    main()
