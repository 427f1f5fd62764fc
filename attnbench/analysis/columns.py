"""The columns of cases, the same and in the same order in `cases.csv`, in JSON and in Python.

The manual has them as a table (`reports/MANUAL.md`), which a test holds to what stands here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

from attnbench.analysis.summary import Frame
from attnbench.records import metrics

# of a summary, by which programs tell cases apart
KEYS = ("key", "match")
# beside metrics, in order; what several have in common is said of the first, others are None
MEANINGS = MappingProxyType({
    "case": "mechanism, form, options and workload in one text",
    "series": "the name of its curve; `mechanism`, `form` and `options` are parts of it",
    "mechanism": None,
    "form": None,
    "options": None,
    "batch": "sequences, the tokens of each, the width of the model and its heads",
    "seq_len": None,
    "width": None,
    "heads": None,
    "level": "`core`, `attention` or `model`; `inference`, `training` or `decode`",
    "mode": None,
    "dtype": "the type of numbers and the device, as torch names them",
    "device": None,
    "causal": "whether later tokens were hidden",
    "padding": "share of each sequence that is padding",
    "step": "tokens of each sequence that a step of decoding takes",
    "tokens": "batch · seq_len; of these, how many an iteration computes outputs of",
    "outputs": None,
    "batch_scale": "times this, costs are those of the tokens per batch of the sweep",
    "layers": "layers of the model; those of a stack, for one of which its costs are given",
    "depth": None,
    "sizes": "the sizes in the name of its series, where a sweep has several",
    "outcome": "`ok`, `oom`, …, or `missing`, what caused it, and the reason in words",
    "cause": None,
    "reason": None,
    "rounds": "rounds in which it was timed",
    "attention_kernel": "which kernel of fused attention ran",
    "number_types": "types of numbers in which operators gave results",
    "arithmetic": "how float32 was multiplied",
    "uncounted": "memory that peaks miss",
    "clock": "what times are: CPU, wall or device time, and of how many threads",
    "threads": None,
    "interval_kind": "what the interval of a time allows for, and how many samples there are",
    "samples": None,
    "launch_bound": "whether the host enqueues an iteration more slowly than a GPU runs it",
    "shows_launches": "whether device times include launches; such a case is not ranked",
    "shell_flops": "matrix products outside the attention",
    "filled": "whether decoding began from random numbers in place of what a prompt leaves",
    "predicted_s": "time and allocated peak, predicted where they were not measured",
    "predicted_bytes": None,
    "suspect": "why no case of the series is ranked, or empty",
})  # fmt: skip


@dataclass(frozen=True)
class ColumnGroup:
    """Neighbouring columns that are explained together."""

    names: tuple[str, ...]
    meaning: str


def reported(cases: Frame) -> Frame:
    """The columns of a summary but for `KEYS`, in the order of `explained`."""
    return cases[[name for columns in explained() for name in columns.names]]


def explained() -> Iterator[ColumnGroup]:
    """What each column of `reported` means: first what is no metric, then metrics in order."""
    together: dict[str, list[str]] = {}
    meaning = ""
    for name, text in MEANINGS.items():
        meaning = text or meaning
        together.setdefault(meaning, []).append(name)
    for meaning, names in together.items():
        yield ColumnGroup(tuple(names), meaning)
    yield from map(_of_metric, metrics.ROWS)


def _of_metric(metric: metrics.Metric) -> ColumnGroup:
    """The columns of a metric: five for what rounds repeat."""
    text = f"{metric.label}: {metric.description}"
    return ColumnGroup(metric.estimate if metric.interval else (metric.key,), text)
