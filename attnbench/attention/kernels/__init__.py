"""Kernels in Triton; a form imports them when it is built."""

import os
from importlib.util import find_spec

from attnbench.records import Workload


def needs(w: Workload) -> str | None:
    """Why the kernels cannot run the workload, or None."""
    if find_spec("triton") is None:
        return "Triton is not installed: pip install triton (Linux only)"
    if w.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        return "Triton compiles for GPUs only"
    if w.dtype == "float64":
        return "the Triton kernel sums in float32; use the form eager"
    return None
