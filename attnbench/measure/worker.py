"""One process, one part of one case: build it, check it, measure it, answer.

A request and its answer are JSON. `main` is called in a fresh process and never raises: whatever
a mechanism does, the answer has an outcome and a reason.
"""

import ctypes
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

# spinning threads beside a busy neighbour made a 14 ms operation take up to 120 ms; libgomp
# reads this when torch loads it
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# compiling in processes of its own would leave them behind when a case is killed
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
import torch._dynamo  # optimisers import it at first use, which costs seconds in every process

from attnbench.contract import Card
from attnbench.measure import device, digits, memory, oddities
from attnbench.measure.environment import environment, load
from attnbench.measure.subject import Subject, iteration, small
from attnbench.measure.timing import HostStopwatch, measure, sample
from attnbench.measure.trial import counted_flops
from attnbench.measure.verify import verify
from attnbench.records import Case, Outcome, Part, Settings
from attnbench.registry import card

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
RESIDENT_MMAP_BYTES = 65_536  # with larger ones, VmHWM is off by −25 to +100 %
OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "not enough memory")


def main(request: str) -> str:
    """Answer a request: `{"environment", "dtype"}`, `{"verify"}` or `{"case", "part"}`.

    Each has `settings` too.
    """
    asked = json.loads(request)
    settings = Settings(**asked["settings"])
    torch.set_num_threads(settings.threads)
    if "environment" in asked:
        return json.dumps(
            asdict(environment(asked["environment"], settings.threads, asked["dtype"]))
        )
    if "verify" in asked:
        return json.dumps({"checks": verify(card(asked["verify"]))})
    case, part = Case.from_json(asked["case"]), Part(asked["part"])
    limit_memory(settings, case)
    try:
        return json.dumps(run(card(case.mechanism), case, part, settings))
    except Exception as error:
        outcome = Outcome.OOM if is_out_of_memory(error) else Outcome.FAILED
        return json.dumps({"outcome": outcome, "reason": describe(error)})


def run(its: Card, case: Case, part: Part, settings: Settings) -> Mapping[str, Any]:
    """The answer for one part of one case."""
    match part:
        case Part.TIME:
            return timed(its, case, settings)
        case Part.MEMORY:
            return counted(its, case, settings)


def timed(its: Card, case: Case, settings: Settings) -> Mapping[str, Any]:
    """Samples, after one checked iteration."""
    keep_pages()
    begun, load_before, state = time.perf_counter(), load(), torch_state()
    subject = Subject(its, case, settings.seed)
    cuda = case.workload.device.startswith("cuda")
    watch = device.CudaStopwatch(settings.cold) if cuda else HostStopwatch()
    accept = device.fast_enough if cuda else lambda: True
    setup_s = time.perf_counter() - begun
    before = device.readings() if cuda else {}

    iterate = iteration(subject)
    kept = []
    with oddities.watched(subject) as watched:
        first = sample(lambda lap: kept.append(iterate(lap)), subject.clear, watch, 1)
    if wrong := subject.check(kept.pop()):
        return {"outcome": Outcome.FAILED, "reason": wrong}
    found = measure(iterate, subject.clear, watch, settings, first, accept)

    values = {
        "setup_s": setup_s,
        "warmup_s": found.warmup_s,
        "warmup_iterations": found.warmup_iterations,
    }
    values |= {
        key: value
        for key, value in [("load_before", load_before), ("load_after", load())]
        if value is not None
    }
    notes = {"stopped": found.stopped, "allocator": "pages kept" if not cuda else "caching"}
    if cuda:
        values |= since(before, device.readings())
        notes |= {"throttle": device.throttle()}
    notes |= {
        "changed": changes(state, torch_state()),
        "odd": oddities.odd(subject, watched, settings.seed),
    }
    return {
        "outcome": Outcome.OK,
        "samples": found.samples,
        "values": values,
        "notes": {key: note for key, note in notes.items() if note},
    }


def torch_state() -> dict[str, Any]:
    """Settings of the whole process that a mechanism has no business changing."""
    return {
        "default dtype": torch.get_default_dtype(),
        "number of threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
    }


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """`number of threads 2 to 7; …`, or nothing."""
    pairs = ((name, before[name], after[name]) for name in before)
    return "; ".join(f"{name} {old} to {new}" for name, old, new in pairs if old != new)


def since(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """The readings after the samples; energy as what was used while they ran."""
    found = dict(after)
    if "energy_j" in before and "energy_j" in after:
        found["energy_j"] = after["energy_j"] - before["energy_j"]
    return found


def counted(its: Card, case: Case, settings: Settings) -> Mapping[str, Any]:
    """Peaks, bytes saved, operators and bytes moved of one iteration."""
    if case.workload.device.startswith("cuda"):
        values, notes = memory.on_cuda(Subject(its, case, settings.seed))
    else:
        mallopt(M_MMAP_THRESHOLD, RESIDENT_MMAP_BYTES)
        rehearse(its, case, settings)
        values, notes = memory.on_cpu(lambda: Subject(its, case, settings.seed))
    if not its.declared:
        values |= of_its_own(Subject(its, case, settings.seed))
    else:
        found = digits.error(its, case, settings.seed)
        values |= {} if found is None else {"error": found}
    return {"outcome": Outcome.OK, "values": values, "notes": notes}


def of_its_own(subject: Subject) -> dict[str, float]:
    """Parameters and forward FLOPs of a module that does not declare them."""
    mask = subject.mask
    counted = counted_flops(subject.module, *subject.inputs, *([] if mask is None else [mask]))
    return {"parameters": sum(p.numel() for p in subject.parameters), "flops": counted}


def rehearse(its: Card, case: Case, settings: Settings) -> None:
    """Load code and library workspaces with a small batch, so that they are not measured."""
    subject = Subject(its, small(case), settings.seed)
    iteration(subject)(lambda phase: None)


def keep_pages() -> None:
    """Have the allocator keep freed pages, so that no iteration pays for page faults again."""
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, -1)


def mallopt(parameter: int, value: int) -> None:
    """Set a parameter of glibc's allocator; other allocators have no such call."""
    call = getattr(ctypes.CDLL(None), "mallopt", None)
    if call is not None:
        call(parameter, value)


def limit_memory(settings: Settings, case: Case) -> None:
    """A ceiling that turns a kill by the kernel into an error that can be recorded.

    Not on CUDA, whose driver reserves far more addresses than it uses.
    """
    if settings.memory_limit_bytes is None or case.workload.device.startswith("cuda"):
        return
    try:
        import resource

        in_use = memory.status_bytes("VmSize")
    except (ImportError, OSError):  # another system, or one that hides /proc
        return
    limits = resource.getrlimit(resource.RLIMIT_AS)
    set_before = [limit for limit in limits if limit != resource.RLIM_INFINITY]
    ceiling = min([in_use + settings.memory_limit_bytes, *set_before])
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, limits[1]))


def is_out_of_memory(error: Exception) -> bool:
    """torch reports a refused allocation as a RuntimeError on a CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in OUT_OF_MEMORY)


def describe(error: Exception) -> str:
    """One line of an exception."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
