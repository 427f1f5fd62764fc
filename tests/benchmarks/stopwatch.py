"""Whether the tool's timer agrees with others; needs an idle machine, not run by the tests.

    python -W ignore -m tests.benchmarks.stopwatch [--device cpu] > reports/stopwatch.md

Ten mechanisms × three lengths, inference at level `attention`, 2,048 tokens, one thread. These
alternate in one process: a run of the tool (with its warm-up, samples and stopping rule), a
hand-written loop, `torch.utils.benchmark.Timer` and, on CUDA, Triton's `do_bench`. Each ratio is
the median over rounds of the ratio of medians; it should be within 2 % of 1. Then the allocated
peak of five cases is compared with the exact number of bytes that their equations need.
"""

import argparse
import statistics
import time

import torch
from torch.utils.benchmark import Timer

from attnbench.device import find
from attnbench.measure import memory
from attnbench.measure.allocator import keep_pages
from attnbench.measure.subject import Subject, iteration
from attnbench.measure.timing import sample, warm_up
from attnbench.records import Case, Level, Mode, Settings, Workload
from attnbench.registry import card
from attnbench.run.schedule import turns
from tests.benchmarks.header import begin

MECHANISMS = (
    *("transformer", "fastformer", "longformer", "bigbird", "linformer", "linear_transformer"),
    *("performer", "reformer", "nystromformer", "sparse_transformer"),
)
TOKENS = 2048
BLOCK_S = 0.3  # per timer and round


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MECHANISMS))
    parser.add_argument("--lengths", default="128,512,2048")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keep_pages()
    others = ("hand", "Timer") + ("do_bench",) * find(asked.device).flushes_cache
    command = "python -W ignore -m tests.benchmarks.stopwatch"
    begin("Agreement with independent timers", __doc__, command, "torch")
    print(f"| case | {' | '.join(f'tool / {name}' for name in others)} |")
    print(f"|---|{'---:|' * len(others)}")
    worst = 0.0
    for name in asked.models.split(","):
        for seq_len in map(int, asked.lengths.split(",")):
            label, *values = ratios(case(name, seq_len, asked.device), asked.rounds)
            worst = max([worst, *(abs(ratio - 1) for ratio in values)])
            cells = " | ".join(f"{ratio:.3f}" for ratio in values)
            print(f"| {label} | {cells} |", flush=True)
    print(f"\nFarthest from 1: {worst:.1%}\n\n| core of eager softmax | measured | theory |")
    print("|---|---:|---:|")
    for batch, heads, seq_len in ((1, 4, 256), (2, 2, 300), (1, 1, 2048), (3, 8, 65), (1, 16, 777)):
        print(peak(batch, heads, seq_len))


def case(name, seq_len, device):
    mechanism = card(name)
    w = Workload(
        batch=TOKENS // seq_len,
        seq_len=seq_len,
        width=256,
        heads=16,
        level=Level.ATTENTION,
        mode=Mode.INFERENCE,
        device=device,
    )
    return Case(
        mechanism=name, form=mechanism.default(mechanism.configure({}), w), options=(), workload=w
    )


def ratios(case, rounds):
    """The case, and the ratio of the tool's time to that of each other timer."""
    subject = Subject(card(case.mechanism), case, seed=0)
    run = iteration(subject)
    device = find(case.workload.device)
    watches = [tool, by_hand, by_timer] + [by_triton] * device.flushes_cache
    times = {watch: [] for watch in watches}
    for number in range(rounds):
        for watch in watches if number % 2 else watches[::-1]:
            times[watch].append(watch(subject, run, device))
    pairs = (zip(times[tool], times[other], strict=True) for other in watches[1:])
    return str(case), *(statistics.median(a / b for a, b in each) for each in pairs)


def tool(subject, run, device):
    """The laps of a race, as a worker runs them."""
    watch = device.stopwatch()
    first = sample(run, subject.clear, watch, 1)
    each_s = warm_up(run, subject.clear, watch, first.seconds, BLOCK_S / 10)[-1]
    planned = turns(each_s, Settings(sample_s=BLOCK_S))
    laps = (sample(run, subject.clear, watch, planned.iterations) for _ in range(2 * planned.pairs))
    return statistics.median(lap.seconds for lap in laps)


def by_hand(subject, run, device):
    """The simplest loop: clock, one call, clock."""
    times, ends = [], time.perf_counter() + BLOCK_S
    while time.perf_counter() < ends or len(times) < 5:
        device.synchronise()
        begun = time.perf_counter()
        with torch.no_grad():
            subject.module(*subject.inputs)
        device.synchronise()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def by_timer(subject, run, device):
    """torch's timer."""
    inside = {"module": subject.module, "x": subject.inputs[0], "torch": torch}
    timer = Timer("with torch.no_grad(): module(x)", globals=inside, num_threads=1)
    return timer.blocked_autorange(min_run_time=BLOCK_S).median


def by_triton(subject, run, device):
    """Triton's timer, which flushes the second-level cache before each call."""
    from triton.testing import do_bench

    with torch.no_grad():
        return do_bench(lambda: subject.module(*subject.inputs), return_mode="median") / 1000


def peak(batch, heads, seq_len):
    """The peak at which q, k, v, logits, weights and the output are alive."""
    w = Workload(
        batch=batch,
        seq_len=seq_len,
        width=16 * heads,
        heads=heads,
        level=Level.CORE,
        mode=Mode.INFERENCE,
    )
    case = Case(mechanism="transformer", form="eager", options=(), workload=w)
    values, _ = memory.on_cpu(lambda: Subject(card("transformer"), case, seed=0))
    theory = 4 * (4 * batch * seq_len * w.width + 2 * batch * heads * seq_len**2)
    return f"| {case} | {values['allocated_peak_bytes']:,.0f} | {theory:,} |"


if __name__ == "__main__":
    main()
