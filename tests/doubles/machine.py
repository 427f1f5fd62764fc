"""A machine that runs nothing: workers answer by rule, and the clock moves by what it takes.

Several may work at once, each on a core of its own; one that is stopped does not.
"""

import itertools
import math

from attnbench.records import Case, Clock
from attnbench.records.messages import AboutCase, Build, Failure, Lap, read_answer, tag_of


class Machine:
    """An iteration takes `seconds(case)`; `fate(case, do)` may give another answer, or end it.

    A fate is a `Failure`, or what the process sends, with the seconds that it takes as `after_s`;
    `do` names the question. With
    `hold_s` there is a device clock, and the wall time of each sample is longer by that. A case is
    compiled in `compile_s(case)` when it is built or weighed; either takes `overhead_s` besides. A
    process that measures memory finds `peak_bytes(case)`. On a machine that is `shared`, everything
    takes that many times as long, and CPU time counts. A process can be stopped if `stops(pid)`.
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
        stops=lambda pid: True,
    ):
        self.now, self.stored = 50.0, []
        self.started, self.asked, self.builds = [], [], []
        self.seconds, self.fate, self.hold_s, self.compile_s = seconds, fate, hold_s, compile_s
        self.overhead_s = overhead_s
        self.shared = shared
        self.peak_bytes = peak_bytes
        self.stops = stops
        self.workers = []
        self.beside_laps = []  # how many others worked when a lap began
        self.pids = itertools.count(1)

    def clock(self):
        return self.now

    def besides_s(self, case, do):
        """Seconds of building a case or of measuring its memory, but for its iterations."""
        return self.overhead_s

    def passes(self, seconds):
        """Let time pass, in which every worker that is not stopped works."""
        self.now += seconds
        for worker in self.working():
            worker.left_s -= seconds

    def working(self):
        """The workers that are working, in a case or on an answer that nobody has read."""
        return [worker for worker in self.workers if worker.is_working]

    def append(self, *records):
        self.stored += records

    def worker(self, pid):
        return Worker(self, pid)

    def start(self, series, *, round_=0, measures_memory=False):
        self.passes(0.02)
        worker = self.worker(next(self.pids))
        self.workers = [each for each in self.workers if each.alive]
        self.workers.append(worker)
        self.started.append((series, measures_memory))
        return worker


class Worker:
    def __init__(self, machine, pid):
        self.machine, self.pid, self.alive, self.case = machine, pid, True, None
        self.used_s = 0.0
        self.pending = None  # a question, what it gives, and whether that is a fate
        self.left_s = 0.0  # until it is answered
        self.stopped = False
        self.cores = None

    @property
    def is_working(self):
        return self.alive and self.pending is not None and not self.stopped

    def user_s(self):
        """CPU seconds since the last call."""
        used_s, self.used_s = self.used_s, 0.0
        return used_s

    def new_usage(self):
        """The same to the nanosecond, which this system does not say, and no page faults."""
        return math.nan, 0

    def end(self):
        self.alive = False
        return 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.end()

    def ask(self, question, limit_s):
        return self.send(question) or self.receive(question, limit_s)

    def bind(self, cores):
        self.cores = set(cores)

    def stop(self):
        self.stopped = self.machine.stops(self.pid)
        return self.stopped

    def go_on(self):
        assert self.alive
        self.stopped = False

    def send(self, question):
        assert self.alive, "asked after its end"
        assert self.pending is None, "asked while it works"
        machine, do = self.machine, tag_of(type(question).__name__)
        if isinstance(question, AboutCase):
            names = ("mechanism", "form", "options", "workload")
            self.case = Case(**{name: getattr(question, name) for name in names})
        machine.asked.append((do, self.case, self.pid))
        if isinstance(question, Build):
            machine.builds.append(question)
        if isinstance(question, Lap):
            machine.beside_laps.append(len(machine.working()))
        if fate := machine.fate(self.case, do):
            self.left_s = 0.1 if isinstance(fate, Failure) else fate.get("after_s", 0.1)
            self.pending = question, fate, True
        else:
            self.pending = question, self.usual(question, do), False

    def receive(self, question, limit_s):
        assert not self.stopped
        fated = self.pending[2]
        if self.left_s > limit_s and not fated:
            self.machine.passes(limit_s)
            self.alive = False
            return Failure(outcome="timeout", reason=f"no answer after {limit_s:.0f} s; killed")
        self.machine.passes(max(0.0, self.left_s))
        return self.answer()

    def poll(self, question):
        assert question == self.pending[0]
        return None if self.left_s > 1e-9 else self.answer()

    def wait(self, limit_s, *others):
        workers = (self, *others)
        assert len({*workers}) == len(workers)
        assert not any(worker.stopped for worker in workers)
        self.machine.passes(max(0.0, min(limit_s, *(worker.left_s for worker in workers))))

    def answer(self):
        (question, given, _), self.pending = self.pending, None
        answer = given if isinstance(given, Failure) else read_answer(given, question)
        self.alive = not (isinstance(answer, Failure) and answer.outcome in ("crashed", "timeout"))
        return answer

    def usual(self, question, do):
        """What the process sends where nothing else is its fate, after `left_s`."""
        machine = self.machine
        each = machine.seconds(self.case)
        iterations = question.iterations if isinstance(question, Lap) else 1
        compile_s = machine.compile_s(self.case)
        besides_s = machine.besides_s(self.case, do)
        overhead_s = besides_s * (machine.shared or 1)
        first = besides_s + each + compile_s
        took = {"lap": each * iterations, "build": first, "measure_memory": first}
        own = took.get(do, 0.0)
        self.left_s = elapsed = own * (machine.shared or 1)
        wall_s, device_s = elapsed + (machine.hold_s or 0), machine.hold_s and elapsed
        self.used_s += own
        sample = [iterations, wall_s, own, device_s, own, 0, 0]
        if machine.shared:
            sample += [None, None, None, Clock.CPU, elapsed - own]
        weighed = {"allocated_peak_bytes": machine.peak_bytes(self.case)}
        answers = {
            "build": {"iteration_s": each, "wall_s": elapsed - overhead_s},
            "lap": {"sample": sample},
            "finish": {
                "values": {"warmup_s": each, "compile_s": compile_s},
                "notes": {},
                "needs_new_process": False,
            },
            "measure_memory": {"values": weighed, "notes": {}, "needs_new_process": True},
        }
        return {"outcome": "ok", **answers[do]}
