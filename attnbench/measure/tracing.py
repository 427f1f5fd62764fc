"""A trace of a case: some of its iterations under torch's profiler."""

import warnings
from collections.abc import Callable
from typing import Any

from torch.profiler import profile, supported_activities

LEAST_S, MOST = 0.05, 20  # short iterations are repeated


def trace(
    iterate: Callable[..., Any], clear: Callable[[], None], iteration_s: float, path: str
) -> None:
    """Write a trace in Chrome's format to `path`."""
    with warnings.catch_warnings(action="ignore"):  # of the profiler, about itself
        with profile(activities=supported_activities(), profile_memory=True) as recorded:
            for _ in range(max(1, min(MOST, round(LEAST_S / max(iteration_s, 1e-9))))):
                iterate(lambda phase: None)
                clear()
        recorded.export_chrome_trace(path)
