"""Judges a user's function as a mechanism: is it right, steady, and faster than the form here?"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from attnbench.analysis.report import Analysis, analyse
from attnbench.api import measuring
from attnbench.api.measuring import own_server
from attnbench.errors import CannotRun, UsageError
from attnbench.records import Level, Selection
from attnbench.run.process import ask_fresh
from attnbench.run.sweep import Progress
from attnbench.store.journal import load_results
from attnbench.store.temporary import TemporaryFolder
from attnbench.workloads.options import read
from attnbench.workloads.presets import expand
from attnbench.workloads.reading import plan
from attnbench.workloads.requests import request

LENGTHS = "512..8k:x4"
LIMIT_S = 900.0  # of all errors

Found = Mapping[str, Any]


def claim(function: str, mechanism: str) -> tuple[Selection, Selection]:
    """A function of a file as a form of the mechanism, and the mechanism. Raises `UsageError`."""
    path, _, form = function.rpartition(":")
    if not (path.endswith(".py") and form.isidentifier()):
        raise UsageError(f"{function!r} is not of the form path/to/file.py:FUNCTION")
    asked = expand(mechanism)
    if len(asked) != 1 or asked[0].form or ".py" in asked[0].name:
        raise UsageError(f"--as {mechanism!r} is not one mechanism; attnbench models lists all")
    if not Path(path).is_file():
        raise UsageError(f"no file {path!r}")
    options = tuple(pair for pair in asked[0].options if pair[0] != "axes")
    own = replace(asked[0], name=f"{asked[0].name}:{path}", form=form)
    return own, replace(asked[0], options=options)


def judge(
    own: Selection,
    mechanism: Selection,
    given: Mapping[str, Any],
    announce: Callable[[Found], None] = lambda found: None,
    observe: Callable[[Progress], None] = lambda progress: None,
) -> tuple[Found, Analysis | None]:
    """What is found of a function, and if it is right, a race against the mechanism's form.

    Both are of `claim`, and `given` are options of a sweep. What is found is of
    `verify.fitting.judged`, with the `function` and the `mechanism`; `announce` is called with it
    before the race. Raises `UsageError`, `CannotRun`.
    """
    asked = read({"level": Level.CORE, "lengths": LENGTHS, **given})
    first = request({**asked, "models": (str(own),)})
    settings, options = first.settings, dict(own.options)
    how = {"mechanism": own.name, "form": own.form, "dtype": first.dtype, "device": first.device}
    with own_server(settings.threads, settings.seed) as server:
        start = partial(server.process, limit_bytes=settings.memory_limit_bytes)
        answer = ask_fresh(start, LIMIT_S, do="judged", options=options, **how)
        if answer["outcome"] != "ok":
            raise CannotRun(f"{own} cannot be judged: {answer['reason']}")
        found = {**answer, "function": str(own), "mechanism": str(mechanism)}
        del found["outcome"]
        announce(found)
        if not found["right"]:
            return found, None
        options["axes"] = found["axes"]
        raced = replace(own, options=tuple(sorted(options.items())))
        asked |= {"causal": found["causal"], "models": (str(raced), str(mechanism))}
        asked |= {} if found["trains"] else {"mode": ("inference",)}
        race = request(asked)
        planned = plan(race, server)
        with TemporaryFolder() as folder:
            measuring.measure(race, planned, server, folder, observe=observe)
            sweep = load_results(folder)
    (baseline,) = {p.case.series for p in sweep.plan if p.case.mechanism == mechanism.name}
    return found, analyse(sweep, baseline)
