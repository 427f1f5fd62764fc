"""Whether the tool's timer agrees with others.

    python -W ignore -m tests.benchmarks.stopwatch [--device cpu] > reports/stopwatch.md

Ten mechanisms × three lengths, inference at level `attention`, on one thread of a CPU with 2,048
tokens, on a GPU with those of a sweep, since a smaller batch would be bound by launches, which only
the wall clock sees. These alternate in one process: a run of the tool (with its warm-up, samples
and stopping rule), a hand-written loop and `torch.utils.benchmark.Timer`. On a CPU all take CPU
time, and the tool runs once more by the wall clock, which agrees while nothing else runs. Each
ratio is the median over rounds of the ratio of medians; it should be within 2 % of 1.
"""

import argparse
import statistics
import time

import torch
from torch.utils.benchmark import Timer

from attnbench.devices.finding import choose
from attnbench.devices.timing import sample, warm_up
from attnbench.measuring.allocator import keep_pages
from attnbench.measuring.subject import subject_of
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Case, Clock, Level, Mode, Settings, Workload
from attnbench.running.race import turns
from tests.benchmarks.header import begin

MECHANISMS = (
    *("transformer", "fastformer", "longformer", "bigbird", "linformer", "linear_transformer"),
    *("performer", "reformer", "nystromformer", "sparse_transformer"),
)
TOKENS = 2048  # on a CPU
BLOCK_S = 0.3  # per timer and round


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MECHANISMS))
    parser.add_argument("--lengths", default="128,512,2048")
    parser.add_argument("--tokens", type=int, help=f"Default: {TOKENS}, on a GPU those of a sweep.")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    device = choose(asked.device)
    device.select()
    torch.set_num_threads(1)
    keep_pages()
    tokens = asked.tokens or (device.tokens if device.flushes_cache else TOKENS)
    command = "python -W ignore -m tests.benchmarks.stopwatch"
    begin("Agreement with independent timers", __doc__, command, "torch", device=device)
    print(f"| case | {' | '.join(f'tool / {name}' for name in others(device))} |")
    print(f"|---|{'---:|' * len(others(device))}")
    worst = 0.0
    for name in asked.models.split(","):
        for seq_len in map(int, asked.lengths.split(",")):
            label, found = ratios(case(name, seq_len, device, tokens), device, asked.rounds)
            worst = max([worst, *(abs(ratio - 1) for ratio in found.values())])
            cells = " | ".join(f"{ratio:.3f}" for ratio in found.values())
            print(f"| {label} | {cells} |", flush=True)
    print(f"\nFarthest from 1: {worst:.1%}")


def others(device):
    """The timers that the tool is compared with."""
    return ("hand", "Timer") if device.flushes_cache else ("hand", "Timer", "wall")


def case(name, seq_len, device, tokens):
    """The default form of a mechanism at one length."""
    mechanism = card(name)
    w = Workload(
        batch=max(1, tokens // seq_len),
        seq_len=seq_len,
        width=256,
        heads=16,
        level=Level.ATTENTION,
        mode=Mode.INFERENCE,
        device=device.name,
    )
    return Case(
        mechanism=name,
        form=mechanism.default_form(mechanism.configure({}), w),
        options=(),
        workload=w,
    )


def ratios(case, device, rounds):
    """The case, and the ratio of the tool's time to that of each other timer."""
    subject = subject_of(card(case.mechanism), case, seed=0)
    run = subject.iteration()
    timers = {"tool": tool, "hand": by_hand, "Timer": by_timer, "wall": by_wall}
    timers = {name: timers[name] for name in ("tool", *others(device))}
    times = {name: [] for name in timers}
    for number in range(rounds):
        for name in timers if number % 2 else reversed(timers):
            times[name].append(timers[name](subject, run, device))
    ours, found = times["tool"], {}
    for name in others(device):
        found[name] = statistics.median(a / b for a, b in zip(ours, times[name], strict=True))
    return str(case), found


def tool(subject, run, device):
    """What a sweep stores."""
    return statistics.median(lap.seconds for lap in laps(subject, run, device))


def by_wall(subject, run, device):
    """The same by the wall clock."""
    return statistics.median(lap.wall_s / lap.iterations for lap in laps(subject, run, device))


def laps(subject, run, device):
    """The laps of a race, as a worker runs them."""
    watch = device.stopwatch(False, device.host_clock(1))
    first = sample(run, subject.clear, watch, 1)
    last = warm_up(run, subject.clear, watch, first, BLOCK_S / 10)[-1]
    planned = turns(last.seconds, Settings(sample_s=BLOCK_S))
    return [sample(run, subject.clear, watch, planned.iterations) for _ in range(2 * planned.pairs)]


def by_hand(subject, run, device):
    """The simplest loop: clock, one call, clock."""
    times, ends, clock = [], time.perf_counter() + BLOCK_S, clock_of(device)
    while time.perf_counter() < ends or len(times) < 5:
        device.synchronise()
        begun = clock()
        with torch.no_grad():
            subject.module(*subject.inputs)
        device.synchronise()
        times.append(clock() - begun)
    return statistics.median(times)


def clock_of(device):
    """The clock of one thread beside the device."""
    return time.process_time if device.host_clock(1) is Clock.CPU else time.perf_counter


def by_timer(subject, run, device):
    """torch's timer."""
    inside = {"module": subject.module, "x": subject.inputs[0], "torch": torch}
    # torch's own waits for a GPU
    clock = {} if device.flushes_cache else {"timer": clock_of(device)}
    timer = Timer("with torch.no_grad(): module(x)", globals=inside, num_threads=1, **clock)
    return timer.blocked_autorange(min_run_time=BLOCK_S).median


if __name__ == "__main__":
    main()
