"""A sweep in the formats of other tools: Bencher's metrics, and the suites of pyperf.

Cases are named `fastformer/training/N8192`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attnbench.analysis import Analysis, Row
from attnbench.records import Outcome, metrics, units


def bmf(analysis: Analysis) -> dict[str, Any]:
    """For `bencher run --adapter json`: latency [ns] with its 95 % interval; memory, state [bytes].

    What was not measured is left out. Source: bencher.dev/docs/reference/bencher-metric-format.
    """
    by_name = {_name(row): _measures(row) for _, row in analysis.cases.iterrows()}
    return {name: measures for name, measures in by_name.items() if measures}


def _measures(row: Row) -> dict[str, dict[str, float]]:
    keys = ("value", "lower_value", "upper_value")
    times = zip(keys, metrics.TABLE[metrics.TIME].estimate, strict=False)
    measures = {
        "latency": {key: 1e9 * row[name] for key, name in times if units.has_value(row[name])}
    }
    measures |= {
        metrics.TABLE[key].name: {"value": row[key]} for key in (metrics.MEMORY, metrics.STATE)
    }
    return {
        name: numbers for name, numbers in measures.items() if units.has_value(numbers.get("value"))
    }


def pyperf(analysis: Analysis) -> dict[str, Any]:
    """For `pyperf compare_to`: seconds of an iteration; each process is a run of its samples.

    Its test does not know that series took turns: it is less certain than `compare`.
    """
    runs: dict[str, list[dict[str, Any]]] = {}
    cases = {row["key"]: row for _, row in analysis.cases.iterrows()}
    for run in analysis.sweep.runs:
        values = [sample.seconds / cases[run.case]["depth"] for sample in run.samples]
        if run.outcome is Outcome.OK and values:
            runs.setdefault(_name(cases[run.case]), []).append({"values": values})
    benchmarks = [
        {"metadata": {"name": name}, "runs": processes} for name, processes in runs.items()
    ]
    return {"version": "1.0", "metadata": {"unit": "second"}, "benchmarks": benchmarks}


def _name(row: Row) -> str:
    return f"{row['series']}/{row['mode']}/N{row['seq_len']}"


FORMATS: Mapping[str, Callable[[Analysis], Any]] = MappingProxyType({"bmf": bmf, "pyperf": pyperf})


def files(analysis: Analysis, formats: Sequence[str]) -> dict[str, bytes]:
    """`bmf.json` and `pyperf.json`, if they are among `formats`."""
    made = {name: FORMATS[name](analysis) for name in formats if name in FORMATS}
    return {f"{name}.json": json.dumps(each, indent=1).encode() for name, each in made.items()}
