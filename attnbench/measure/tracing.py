"""What a case spends its time on, by operator: iterations under torch's profiler."""

import warnings
from collections.abc import Callable
from typing import Any

from torch.profiler import profile, supported_activities

COSTLIEST = 10
LEAST_S, MOST = 0.05, 20  # short iterations are repeated, since the profiler slows each event

Row = dict[str, Any]


def traced(
    iterate: Callable[..., Any], clear: Callable[[], None], iteration_s: float, path: str
) -> list[Row]:
    """The costliest operators of an iteration; writes a trace in Chrome's format to `path`.

    Each has its name, its calls, its self time in seconds (without operators that it called), its
    share of all self time, and the bytes that it allocated itself. On a GPU these are seconds and
    bytes of the GPU. All but the share are per iteration.
    """
    iterations = max(1, min(MOST, round(LEAST_S / max(iteration_s, 1e-9))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the profiler, about itself
        with profile(activities=supported_activities(), profile_memory=True) as recorded:
            for _ in range(iterations):
                iterate(lambda phase: None)
                clear()
        recorded.export_chrome_trace(path)
        events = recorded.key_averages()
    on_device = any(event.self_device_time_total for event in events)
    side = "device" if on_device else "cpu"
    times = {event.key: getattr(event, f"self_{side}_time_total") / 1e6 for event in events}
    total_s = sum(times.values()) or 1.0
    costliest = sorted(events, key=lambda event: times[event.key], reverse=True)[:COSTLIEST]
    return [
        {
            "operator": event.key,
            "self_s": times[event.key] / iterations,
            "share": times[event.key] / total_s,
            "calls": event.count / iterations,
            "allocated_bytes": getattr(event, f"self_{side}_memory_usage") / iterations,
        }
        for event in costliest
    ]
