"""A sweep as metrics for Bencher; source: bencher.dev/docs/reference/bencher-metric-format.

Cases are named `fastformer/training/N8192`.
"""

import json

from attnbench.analysis.report import Analysis
from attnbench.analysis.summary import Row
from attnbench.metrics import MEMORY, STATE, TABLE, TIME
from attnbench.units import has_value


def bmf(analysis: Analysis) -> bytes:
    """For `bencher run --adapter json`: latency [ns] with its 95 % interval; memory, state [bytes].

    What was not measured is left out.
    """
    rows = [row for _, row in analysis.cases.iterrows()]
    found = {f"{row['series']}/{row['mode']}/N{row['seq_len']}": _measures(row) for row in rows}
    return json.dumps({name: own for name, own in found.items() if own}, indent=1).encode()


def _measures(row: Row) -> dict[str, dict[str, float]]:
    keys = ("value", "lower_value", "upper_value")
    times = zip(keys, TABLE[TIME].estimate, strict=False)
    measures = {"latency": {key: 1e9 * row[name] for key, name in times if has_value(row[name])}}
    measures |= {TABLE[key].name: {"value": row[key]} for key in (MEMORY, STATE)}
    return {name: own for name, own in measures.items() if has_value(own.get("value"))}
