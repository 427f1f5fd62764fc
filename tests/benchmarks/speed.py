"""How our default forms compare with public implementations, and with the machine's floor.

    python -W ignore -m tests.benchmarks.speed [--models NAME,…] [--minutes 25] > reports/speed.md
    python -W ignore -m tests.benchmarks.speed --compiled --lengths 2048 >> reports/speed.md

Level `attention`, D = 256, 16 heads, float32: a forward pass in inference, in training a backward
pass too, without an optimiser. On a CPU one thread, its CPU time, and an allocator that keeps freed
pages, as in a sweep; on a GPU the time between device events.

The floor is the longer of two times: of the matrix products of the mechanism's cheapest form, at
the rate of a large product, and of moving parameters, input and output once, at the rate of a large
copy; three times as much in training. Our time is given as a multiple of it.

Ours and theirs alternate iteration by iteration in one process, a new one for each comparison. The
ratio (theirs over ours; above 1 ours is faster) is the median over pairs, with a 95 % confidence
interval from order statistics. A sweep would start a process for each side in every round: that
takes hours for so many comparisons. One process has one layout of memory, which can favour a side
by 3 to 5 % (`reports/layout.md`); the intervals do not contain that. What does not run on this
device has no row.

`fla-naive` is the plain PyTorch beside kernels of flash-linear-attention: of RWKV-7 in chunks, of
gated linear attention token by token, of the others with all weights stored. Nothing public of
MoBA runs without flash-attn, and so without a GPU.
"""

import argparse
import math
import multiprocessing
import os
import shlex
import statistics
import sys
import time
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from attnbench.devices.finding import choose
from attnbench.devices.host import memory_bytes
from attnbench.devices.out_of_memory import is_out_of_memory
from attnbench.devices.timing import sample
from attnbench.errors import one_line
from attnbench.measuring.allocator import keep_pages, limit
from attnbench.mechanisms.catalogue.presets import preset
from attnbench.mechanisms.catalogue.registry import names
from attnbench.records import Causality, Clock, Level, Mode, Workload
from tests.benchmarks.floor import floor_s, rates
from tests.benchmarks.header import begin
from tests.oracles import card

COMPILED = """\
`compiled` is our form `eager` by `torch.compile`. Where that is faster, it passes once over what
PyTorch's own operators pass over several times: features in `performer` and `linear_transformer`,
short rows of softmax in `local` and `sparse_transformer`, gathers and masks in
`star_transformer`. By hand this needs kernels of one's own. In training `performer` also computes
its chunks once more, to keep less memory."""
MODES = (Mode.INFERENCE, Mode.TRAINING)
WIDTH, HEADS = 256, 16
REHEARSED, FEWEST = 2, 7  # pairs that do not count, as a GPU's stopwatch learns, and that do
ALONE = 3  # iterations of what runs against nothing
LONGEST_S = 90  # that one process may take
COMPILING_S = 300  # and one that compiles


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(names()))
    parser.add_argument("--lengths", default="512,2048,8192")
    parser.add_argument("--tokens", type=int, default=2048, help="Of a batch.")
    parser.add_argument("--minutes", type=float, default=25.0, help="Of all comparisons.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compiled", action="store_true", help="Only against `compiled`.")
    asked = parser.parse_args()
    device = choose(asked.device)
    rows = [
        Row(name, label, workload(name, int(seq_len), asked.tokens, device))
        for name in asked.models.split(",")
        for label in opponents(name, asked.compiled)
        for seq_len in asked.lengths.split(",")
    ]
    rows = only_those_that_run(rows)
    command = shlex.join(["python", "-W", "ignore", "-m", "tests.benchmarks.speed", *sys.argv[1:]])
    packages = dict.fromkeys(row.theirs.package for row in rows if row.label)
    if asked.compiled:
        print(f"\n## Against `compiled`\n\nMade by `{command}`.\n\n{COMPILED}\n")
    else:
        begin("Speed", __doc__, command, *{"torch": 0, **packages}, device=device)
    found, reached, load = measured(rows, asked.device, 60 * asked.minutes)
    print(f"This machine reaches {reached}; {load}.\n")
    for mode in MODES:
        print(f"- {summary(mode, found)}")
    print("\n| mechanism:form | B × N | × floor, inference | training | against", end="")
    print(" | theirs / ours, inference | training |\n|---|---:|---:|---:|---|---|---|")
    for row in sorted(rows, key=lambda row: (row.name, row.label or "")):
        cells = found[row]
        over, ratios = zip(*(cells[mode].said for mode in MODES), strict=True)
        print(f"| {' | '.join((row.head, *over, row.label or '–', *ratios))} |")


def opponents(name, compiled):
    """The labels of forms that ours is compared with; None: it runs alone."""
    if compiled:
        return ["compiled"]
    return [*(label for label, form in card(name).forms.items() if form.package), None]


def workload(name, seq_len, tokens, device):
    """The sizes of a mechanism at a length, in inference."""
    return Workload(
        batch=max(1, tokens // seq_len),
        seq_len=seq_len,
        width=WIDTH,
        heads=HEADS,
        level=Level.ATTENTION,
        mode=Mode.INFERENCE,
        device=device.name,
        causal=card(name).causality is Causality.ALWAYS,
    )


@dataclass(frozen=True)
class Row:
    """A mechanism against the form `label` of its card, or against nothing, at one length."""

    name: str
    label: str | None
    workload: Workload

    @cached_property
    def config(self):
        return card(self.name).configure(preset("mind-classification").options(self.name))

    @property
    def form(self):
        """The name of ours."""
        return card(self.name).default_form(self.config, self.workload)

    @property
    def theirs(self):
        """The class of the other side, or None."""
        return None if self.label is None else card(self.name).forms[self.label]

    @property
    def head(self):
        """Its first cells."""
        return f"{self.name}:{self.form} | {self.workload.batch} × {self.workload.seq_len:,}"


def only_those_that_run(rows):
    """The rows whose other side runs here; one against nothing where no other is left."""

    def runs(row):
        return not card(row.name).refusal(row.label, row.config, row.workload)

    able = [row for row in rows if row.label and runs(row)]
    known = {(row.name, row.workload) for row in able}
    return able + [row for row in rows if not row.label and (row.name, row.workload) not in known]


@dataclass(frozen=True)
class Found:
    """What a process found: our time over the floor, and ratios; or why there are none."""

    over: float = math.nan
    ratios: tuple[float, ...] = ()
    reason: str = ""

    @property
    def said(self):
        """Two cells."""
        over = "–" if math.isnan(self.over) else f"{self.over:.1f}"
        if self.reason or not self.ratios:
            return over, self.reason or "–"
        low, high = interval(self.ratios)
        return over, f"{statistics.median(self.ratios):.2f} [{low:.2f}, {high:.2f}]"


def measured(rows, device_name, seconds):
    """What each row found in each mode, the machine's rates, and how busy it was.

    All share the time that is left, short sequences first. What runs against nothing takes less.
    """
    context, found, loads = multiprocessing.get_context("forkserver"), {}, []
    imported = {row.theirs.module for row in rows if row.label and row.theirs.package}
    context.set_forkserver_preload(["tests.benchmarks.speed", *imported])  # once for all processes
    reached = alone(context, peaks, device_name)
    ends, left = time.monotonic() + seconds, len(MODES) * len(rows)
    for row in sorted(rows, key=lambda row: row.workload.seq_len):
        found[row] = dict.fromkeys(MODES, Found(reason="no time was left"))
        for mode in MODES:
            share = (ends - time.monotonic()) / left
            timed = replace(row, workload=replace(row.workload, mode=mode))
            if share > 0:
                longest = COMPILING_S if row.label == "compiled" else LONGEST_S
                arguments = timed, device_name, share, reached
                found[row][mode] = alone(context, compared, *arguments, longest=longest)
            left -= 1
            loads.append(os.getloadavg()[0])
        said = [cell for mode in MODES for cell in found[row][mode].said]
        print(row.head, row.label, *said, sep=" | ", file=sys.stderr, flush=True)
    return found, reached, f"its load average was {min(loads):.1f} to {max(loads):.1f}"


def alone(context, function, *arguments, longest=LONGEST_S):
    """The answer of a new process; `Found` with the reason if it gives none in `longest` s."""
    with context.Pool(1) as pool:
        try:
            return pool.apply_async(function, arguments).get(longest)
        except multiprocessing.TimeoutError:
            return Found(reason=f"no answer within {longest} s")


def peaks(device_name):
    """The rates of a device."""
    return rates(started(device_name))


def started(device_name):
    """The device, in a process that measures."""
    device = choose(device_name)
    device.select()
    torch.set_num_threads(1)
    if device.clock == "process CPU time":
        keep_pages()
        limit(memory_bytes() // 2)
    return device


def compared(row, device_name, seconds, reached):
    """What a row finds in the mode of its workload."""
    device, w, mechanism = started(device_name), row.workload, card(row.name)
    try:
        sides = [mechanism.forms[row.form](row.config, w)]
        sides += [row.theirs(row.config, w)] if row.label else []
        sides = [side.to(device.torch_name).train(w.trains) for side in sides]
        x = torch.randn(w.batch, w.seq_len, WIDTH, device=device.torch_name)
        ours, ratios = raced(sides, x, w.trains, device, seconds)
    except Exception as error:  # another version, no kernel for the device, or out of memory
        reason = "out of memory" if is_out_of_memory(error) else one_line(error)
        return Found(reason=reason.replace("|", "/"))
    return Found(ours / floor_s(mechanism, row.config, w, reached), ratios)


def raced(sides, x, training, device, seconds):
    """Our median time, and ratios of time, theirs over ours, of alternating iterations."""
    turns = [(iteration(side, x, training), device.stopwatch(clock=Clock.CPU)) for side in sides]
    fewest, times, end = FEWEST if len(sides) > 1 else ALONE, [], time.monotonic() + seconds
    while len(times) < REHEARSED + fewest or (len(sides) > 1 and time.monotonic() < end):
        took = [0.0] * len(sides)
        for index in sorted(range(len(sides)), reverse=len(times) % 2 == 1):
            took[index] = turn(sides[index], x, *turns[index])
        times.append(took)
    ours, *theirs = zip(*times[REHEARSED:], strict=True)
    ratios = tuple(b / a for other in theirs for a, b in zip(ours, other, strict=True))
    return statistics.median(ours), ratios


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


def summary(mode, found):
    """The geometric mean of a mode's ratios, how many are clearly below 1, and its floors."""
    of_mode = {row: cells[mode] for row, cells in found.items()}
    ratios = [one.ratios for one in of_mode.values() if one.ratios]
    overs = {row.head: one.over for row, one in of_mode.items() if not math.isnan(one.over)}
    if not overs:
        return f"{mode}: nothing was measured"
    said = f"{mode}: {statistics.median(overs.values()):.1f} times the floor in the median"
    if ratios:
        mean = statistics.geometric_mean(map(statistics.median, ratios))
        slower = sum(interval(pairs)[1] < 1 for pairs in ratios)
        said += f"; theirs / ours is {mean:.2f} in the geometric mean of {len(ratios)} comparisons,"
        said += f" and {slower} intervals lie below 1"
    return said


if __name__ == "__main__":
    main()
