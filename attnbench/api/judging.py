"""Judges a user's function as a mechanism: is it right, steady, and faster than the form here?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attnbench.analysis.judgement import Judgement
from attnbench.analysis.report import analyse
from attnbench.api import measuring
from attnbench.api.measuring import own_server
from attnbench.errors import CannotRun, UsageError
from attnbench.records import Level, Request, Selection
from attnbench.run.process import ask_fresh
from attnbench.run.sweep import Progress
from attnbench.store.journal import load_results
from attnbench.workloads.options import read
from attnbench.workloads.presets import expand
from attnbench.workloads.reading import plan
from attnbench.workloads.requests import request

LENGTHS = "512..8k:x4"
LIMIT_S = 900.0  # of all errors


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A function of a file, and the mechanism whose core it claims to compute."""

    function: Selection  # kimi_delta:kern.py:f
    mechanism: Selection

    @classmethod
    def read(cls, function: str, mechanism: str) -> "Claim":
        """Raises `UsageError`."""
        path, _, form = function.rpartition(":")
        if not (path.endswith(".py") and form.isidentifier()):
            raise UsageError(f"{function!r} is not of the form path/to/file.py:FUNCTION")
        asked = expand(mechanism)
        if len(asked) != 1 or asked[0].form or ".py" in asked[0].name:
            raise UsageError(f"--as {mechanism!r} is not one mechanism; attnbench models lists all")
        if not Path(path).is_file():
            raise UsageError(f"no file {path!r}")
        own = replace(asked[0], name=f"{asked[0].name}:{path}", form=form)
        own_options = tuple(pair for pair in asked[0].options if pair[0] != "axes")
        return cls(function=own, mechanism=replace(asked[0], options=own_options))


def judge(
    claim: Claim,
    given: Mapping[str, Any],
    announce: Callable[[Judgement], None] = lambda judgement: None,
    observe: Callable[[Progress], None] = lambda progress: None,
) -> Judgement:
    """The errors of a function, and if it is right, a race against the mechanism's form.

    `given` are options of a sweep, and `announce` is called before the race.
    Raises `UsageError`, `CannotRun`.
    """
    asked = read({"level": Level.CORE, "lengths": LENGTHS, **given})
    first = request({**asked, "models": (str(claim.function),)})
    settings = first.settings
    with own_server(settings.threads, settings.seed) as server:
        start = partial(server.process, limit_bytes=settings.memory_limit_bytes)
        found = errors(claim, first, start)
        judgement = Judgement(
            function=str(claim.function),
            mechanism=str(claim.mechanism),
            dtype=first.dtype,
            device=first.device,
            found=found,
        )
        announce(judgement)
        if not judgement.right:
            return judgement
        taken = {**dict(claim.function.options), "axes": found["axes"]}
        mine = replace(claim.function, options=tuple(sorted(taken.items())))
        how = {"causal": found["causal"], "models": (str(mine), str(claim.mechanism))}
        modes = {} if judgement.trains else {"mode": ("inference",)}
        raced = request({**asked, **how, **modes})
        planned = plan(raced, server)
        with TemporaryDirectory(prefix="attnbench-", ignore_cleanup_errors=True) as folder:
            measuring.measure(raced, planned, server, Path(folder), observe=observe)
            sweep = load_results(Path(folder))
    (baseline,) = {p.case.series for p in sweep.plan if p.case.mechanism == claim.mechanism.name}
    return replace(judgement, race=analyse(sweep, baseline))


def errors(claim: Claim, asked: Request, start: Callable[..., Any]) -> Mapping[str, Any]:
    """What `verify.fitting.judged` finds. Raises `CannotRun`."""
    own = claim.function
    answer = ask_fresh(
        start,
        LIMIT_S,
        do="judged",
        mechanism=own.name,
        form=own.form,
        options=dict(own.options),
        dtype=asked.dtype,
        device=asked.device,
    )
    if answer["outcome"] != "ok":
        raise CannotRun(f"{own} cannot be judged: {answer['reason']}")
    return answer
