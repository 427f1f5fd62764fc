"""A machine that runs nothing: workers answer by rule, and the clock moves by what it takes."""

import itertools
import math

import msgspec

from attnbench.records import Case, Clock


class Machine:
    """An iteration takes `seconds(case)`; `fate(case, do)` may give another answer, or end it.

    A fate is an answer that is not `ok`, with the seconds that it takes as `after_s`. With
    `hold_s` there is a device clock, and the wall time of each sample is longer by that. A case is
    compiled in `compile_s(case)` when it is built or weighed; either takes `overhead_s` besides. A
    process that measures memory finds `peak_bytes(case)`. On a machine that is `shared`, everything
    takes that many times as long, and CPU time counts.
    """

    def __init__(
        self,
        seconds=lambda case: 0.1,
        fate=lambda case, do: None,
        hold_s=None,
        compile_s=lambda case: 0.0,
        overhead_s=0.1,
        shared=None,
        peak_bytes=lambda case: 4000,
    ):
        self.now, self.stored = 50.0, []
        self.started, self.asked, self.builds = [], [], []
        self.seconds, self.fate, self.hold_s, self.compile_s = seconds, fate, hold_s, compile_s
        self.overhead_s = overhead_s
        self.shared = shared
        self.peak_bytes = peak_bytes
        self.pids = itertools.count(1)

    def clock(self):
        return self.now

    def besides_s(self, case, do):
        """Seconds of building a case or of measuring its memory, but for its iterations."""
        return self.overhead_s

    def append(self, *records):
        self.stored += records

    def start(self, series, *, round_=0, measures_memory=False):
        self.now += 0.02
        worker = Worker(self, next(self.pids))
        self.started.append((series, measures_memory))
        return worker


class Worker:
    def __init__(self, machine, pid):
        self.machine, self.pid, self.alive, self.case = machine, pid, True, None
        self.used_s = 0.0

    def user_s(self):
        """CPU seconds since the last call."""
        used_s, self.used_s = self.used_s, 0.0
        return used_s

    def used(self):
        """The same to the nanosecond, which this system does not say, and no page faults."""
        return math.nan, 0

    def end(self):
        self.alive = False
        return 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.end()

    def ask(self, timeout_s, do, **asked):
        assert self.alive, "asked after its end"
        machine = self.machine
        if "workload" in asked:
            fields = ("mechanism", "form", "options", "workload")
            self.case = msgspec.convert({name: asked[name] for name in fields}, Case)
        machine.asked.append((do, self.case, self.pid))
        if do == "build":
            machine.builds.append(asked)
        if fate := machine.fate(self.case, do):
            machine.now += fate.get("after_s", 0.1)
            self.alive = fate["outcome"] not in ("crashed", "timeout")
            return fate
        each, iterations = machine.seconds(self.case), asked.get("iterations", 1)
        compile_s = machine.compile_s(self.case)
        besides_s = machine.besides_s(self.case, do)
        overhead_s = besides_s * (machine.shared or 1)
        first = besides_s + each + compile_s
        took = {"lap": each * iterations, "build": first, "measure_memory": first}
        own = took.get(do, 0.0)
        elapsed = own * (machine.shared or 1)
        if elapsed > timeout_s:
            machine.now += timeout_s
            self.alive = False
            return {"outcome": "timeout", "reason": f"no answer after {timeout_s:.0f} s; killed"}
        machine.now += elapsed
        wall_s, device_s = elapsed + (machine.hold_s or 0), machine.hold_s and elapsed
        self.used_s += own
        sample = [iterations, wall_s, own, device_s, own, 0, 0]
        if machine.shared:
            sample += [None, None, None, Clock.CPU, elapsed - own]
        weighed = {"allocated_peak_bytes": machine.peak_bytes(self.case)}
        answers = {
            "build": {"form": self.case.form, "iteration_s": each, "wall_s": elapsed - overhead_s},
            "lap": {"sample": sample},
            "finish": {
                "values": {"warmup_s": each, "compile_s": compile_s},
                "notes": {},
                "needs_new_process": False,
            },
            "measure_memory": {"values": weighed, "notes": {}, "needs_new_process": True},
        }
        return {"outcome": "ok", **answers[do]}
