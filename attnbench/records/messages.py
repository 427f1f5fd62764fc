"""Questions to measuring processes, and their answers: plain data that both sides check.

A question is a struct whose class names its answer: `Process.ask(Lap(iterations=3), 60.0)` gives a
`Lapped` or a `Failure`. On the connection a question is an object whose `do` names its class, an
answer one whose `outcome` is `ok`, with the fields of the class. Fields that have their default are
not sent, and unknown ones are passed over: another version of this package, whose own worker
measures its tree, understands what it knows.

Numbers that no machine can have measured are refused where an answer is read, as what a mechanism
leaves behind in its process may have changed them.
"""

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, TypeAlias, TypeVar, get_args

from msgspec import UNSET, Struct, UnsetType, convert, to_builtins

from attnbench.records.bounds import Count, Duration, Many, Option, Seconds
from attnbench.records.card import CardFacts
from attnbench.records.case import Case, Workload
from attnbench.records.kernel import Attempt, Kernel, PanelRow
from attnbench.records.machine import Environment
from attnbench.records.request import Request
from attnbench.records.run import MISSING, Cause, Clock, Outcome, Sample
from attnbench.records.selection import Selection
from attnbench.records.sweep import Planned

NOT_OK = frozenset({*Outcome, MISSING}) - {Outcome.OK}


class ProcessAnswer(Struct, frozen=True, kw_only=True):
    """What a process answers where all went well."""


A = TypeVar("A", bound=ProcessAnswer)


class Failure(Struct, frozen=True, kw_only=True):
    """Why there is no answer.

    `outcome` is none but `ok`, or `MISSING` where a source tree lacks what was asked for. The
    `cause` is `KILLED` if something other than the process's own code may have ended it. `error` is
    the name of the class in `errors` that the process raised, if it did. `files` are those that
    `Loads` asked about, as far as they were loaded. Raises `ValueError` for another outcome.
    """

    outcome: str
    reason: str = ""
    cause: Cause | None = None
    notes: Mapping[str, str] = {}
    error: str = ""
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.outcome not in NOT_OK:
            raise ValueError(f"{self.outcome!r} is no outcome of a failure")

    @property
    def is_killed(self) -> bool:
        """Whether something other than its own code may have ended the process."""
        return self.cause is Cause.KILLED

    @property
    def is_timeout(self) -> bool:
        """Whether its process was killed since there was no answer in time."""
        return self.outcome == Outcome.TIMEOUT

    @property
    def is_out_of_memory(self) -> bool:
        """Whether memory ran out."""
        return self.outcome == Outcome.OOM


class ProcessQuestion(Struct, Generic[A], frozen=True, omit_defaults=True, kw_only=True):
    """What a process is asked; `A` is the class of its answer."""

    @property
    def about(self) -> str:
        """The mechanism that it is about, or whose answer is awaited, for messages."""
        return str(getattr(self, "mechanism", "a process"))


def tag_of(name: str) -> str:
    """How a question of a class is called: `measure_memory` of `MeasureMemory`."""
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()


class WorkerQuestion(ProcessQuestion[A], tag_field="do", tag=tag_of, frozen=True, kw_only=True):
    """A question that one method of a worker answers: the one that is named as its class is.

    A class with a `tag` has another method: the name that other versions of this package know.
    """


class Done(ProcessAnswer, frozen=True, kw_only=True):
    """It is done; there is nothing to tell."""


class Load(ProcessQuestion[Done], frozen=True, kw_only=True):
    """The first question: which module's `Worker` answers from now on, and for which tree.

    `places`, `instead_of` and `sites` are as `measuring.server.load` takes them. The others are for
    the worker: `seed` of parameters and inputs; `own`: only mechanisms of the tree count;
    `measures_memory` in place of time; `limit_bytes` of memory; where pytest runs.
    """

    tree: str | None
    caches: str
    threads: int
    module: str
    places: tuple[str, ...] | UnsetType = UNSET
    instead_of: str | None = None
    sites: tuple[str, ...] = ()
    seed: int | UnsetType = UNSET
    own: bool = False
    measures_memory: bool = False
    limit_bytes: int | None = None
    root: str | UnsetType = UNSET
    rootdir: str | UnsetType = UNSET
    folder: str | UnsetType = UNSET
    arguments: tuple[str, ...] | UnsetType = UNSET


class AboutCase(WorkerQuestion[A], frozen=True, kw_only=True):
    """A question about one case: a mechanism on a workload, or a function, which has none.

    `options` are pairs of name and value. Without a `form` the default one is meant.
    """

    mechanism: str
    options: tuple[tuple[str, Option], ...]
    form: str | UnsetType | None = UNSET
    workload: Workload | UnsetType = UNSET


class TimedCase(AboutCase[A], frozen=True, kw_only=True):
    """A question about a case that is to be timed, and how: from a request's settings, its race."""

    warmup_s: float = 0.0  # most seconds of the warm-up
    faulting_s: float = 0.0  # most seconds of it while pages fault
    cold: bool = False  # whether the device's cache is flushed before each iteration
    cuda_graphs: bool = False  # whether the iteration, once checked, is captured and replayed
    energy: bool = False  # whether `finish` measures an iteration's
    clock: Clock = Clock.CPU  # where there is no device time
    core: int | None = None  # to which the process is bound from now on
    inputs_seed: int = 0  # of the inputs of all iterations but the first; should be fresh
    filled: bool = False  # whether a step's state is random numbers, and not left by a prompt
    suspicious: bool = False  # whether `finish` looks for odd behaviour


class Warm(ProcessAnswer, frozen=True, kw_only=True):
    """A case is warm: seconds that an iteration costs in full, and its wall time."""

    iteration_s: Duration
    wall_s: Duration


class Build(TimedCase[Warm], frozen=True, kw_only=True):
    """Build a case, check one iteration, and warm up."""


class Trace(TimedCase[Done], frozen=True, kw_only=True):
    """Build and warm up a case, and trace it to the file `path`."""

    path: str


class Lapped(ProcessAnswer, frozen=True, kw_only=True):
    """A sample; set-ups between its calls took `untimed_s` of CPU time."""

    sample: Sample
    untimed_s: Seconds = 0.0


class Lap(WorkerQuestion[Lapped], frozen=True, kw_only=True):
    """One sample of the case that was built.

    With `rehearse`, one iteration runs untimed first. A disturbed sample is taken once more if the
    `left_s` of the budget allow it.
    """

    iterations: Many
    rehearse: bool = False
    left_s: float = math.inf


class Finished(ProcessAnswer, frozen=True, kw_only=True):
    """Values and notes of a case since its build began.

    `needs_new_process`: this one should measure nothing else. Set-ups between calls took
    `untimed_s` of CPU time.
    """

    values: Mapping[str, float]
    notes: Mapping[str, str]
    needs_new_process: bool
    untimed_s: Seconds = 0.0


class Finish(WorkerQuestion[Finished], frozen=True, kw_only=True):
    """Drop the case that was built; what takes long is left out beyond `left_s`."""

    left_s: float = math.inf


class Weighed(ProcessAnswer, frozen=True, kw_only=True):
    """Peaks and counts of a case, whose label is `case`.

    `needs_new_process`: this one should measure nothing else.
    """

    values: Mapping[str, float]
    notes: Mapping[str, str] = {}
    case: str = ""
    needs_new_process: bool = True


class MeasureMemory(AboutCase[Weighed], frozen=True, kw_only=True):
    """Peaks, counts and the numerical error of a case.

    checked: output and gradients are checked in place of that error
    filled: a step's state is random numbers, and not left by a prompt
    """

    checked: bool = False
    filled: bool = False


class Compared(ProcessAnswer, frozen=True, kw_only=True):
    """How the results of a case differ from those that were kept.

    `what` has the largest `error`, of which so much is `allowed`; those that were kept are `drawn`
    from what other random draws give. All are relative.
    """

    drawn: float = 0.0
    what: str = ""
    error: float = 0.0
    allowed: float = 0.0

    @property
    def differs(self) -> bool:
        """Whether more differs than is allowed."""
        return self.error > self.allowed


class Outputs(AboutCase[Compared], frozen=True, kw_only=True):
    """Keep in the file `path` what a case computes, or compare it with what is kept there."""

    path: str
    keeps: bool


class ProbeTimes(ProcessAnswer, frozen=True, kw_only=True):
    """Seconds of each probe of a core since the last question."""

    probes: tuple[float, ...]


class Probe(WorkerQuestion[ProbeTimes], frozen=True, kw_only=True):
    """How fast the core is; the first question starts the probes."""

    core: Count


class MachineFacts(ProcessAnswer, frozen=True, kw_only=True):
    """This machine with its versions."""

    environment: Environment


class DescribeMachine(WorkerQuestion[MachineFacts], tag="environment", frozen=True, kw_only=True):
    """This machine, with measured peak rates in each of the number types."""

    device: str
    threads: int
    dtypes: tuple[str, ...]


class LoadedForms(ProcessAnswer, frozen=True, kw_only=True):
    """Forms of a mechanism that do not compile, and the files of the tree that are loaded."""

    forms: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class Loads(WorkerQuestion[LoadedForms], frozen=True, kw_only=True):
    """What a process has loaded for one mechanism."""

    mechanism: str
    device: str


class LoadedFiles(ProcessAnswer, frozen=True, kw_only=True):
    """The files that a process has loaded: of modules, and other libraries."""

    modules: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


class Files(WorkerQuestion[LoadedFiles], frozen=True, kw_only=True):
    """The files that a process has loaded; those of packages only where they are `watched`."""

    watched: tuple[str, ...] = ()


class Tests(ProcessAnswer, frozen=True, kw_only=True):
    """Why pytest ran no tests, if it ran none."""

    error: str = ""


class RunTests(WorkerQuestion[Tests], tag="tried", frozen=True, kw_only=True):
    """Run all tests that are to be timed once; what became of them is kept in a file."""


class HasFunction(WorkerQuestion[Done], tag="has", frozen=True, kw_only=True):
    """Whether a function exists, by its name; it is not called."""

    mechanism: str


class TestNames(ProcessAnswer, frozen=True, kw_only=True):
    """The names of tests."""

    tests: tuple[str, ...]


class CollectTests(WorkerQuestion[TestNames], tag="collected", frozen=True, kw_only=True):
    """The names of all tests that the user's options choose; none is run."""


class Hold(WorkerQuestion[Done], frozen=True, kw_only=True):
    """Do what all processes of a series need, then fork one for each connection that comes."""


class Plans(ProcessAnswer, frozen=True, kw_only=True):
    """The cases of each selection, and what a report needs of each mechanism."""

    plan: tuple[tuple[Planned, ...], ...]
    cards: tuple[CardFacts, ...]


class AboutCards(WorkerQuestion[A], frozen=True, kw_only=True):
    """A question about the cards of these mechanisms."""

    names: tuple[str, ...]


class ReadPlan(AboutCards[Plans], frozen=True, kw_only=True):
    """Which cases some selections of mechanisms make of a request."""

    request: Request
    selections: tuple[Selection, ...]


class Described(ProcessAnswer, frozen=True, kw_only=True):
    """Each mechanism in full, as `attnbench models` prints it."""

    described: tuple[dict[str, Any], ...]


class Describe(AboutCards[Described], frozen=True, kw_only=True):
    """What mechanisms declare, and which of their forms run on a device."""

    device: str


class Verified(ProcessAnswer, frozen=True, kw_only=True):
    """Check, trial, result and reason of each of the contract's checks."""

    checks: tuple[dict[str, str], ...]


class Verify(AboutCards[Verified], frozen=True, kw_only=True):
    """The contract's checks of one mechanism, and if asked under stress."""

    stress: bool = False


class Fitted(ProcessAnswer, frozen=True, kw_only=True):
    """How a function is called as a mechanism, and what is to be tried of it."""

    kernel: Kernel


class Fit(WorkerQuestion[Fitted], frozen=True, kw_only=True):
    """How a user's function is called as a mechanism.

    lengths: those of the race, each with its batch
    causal: the one mode that is tried, or None for all that the function takes
    chosen: whether someone asked for width or heads
    padded: whether sequences of the race have padding
    """

    mechanism: str
    form: str
    options: dict[str, Option]
    dtype: str
    device: str
    width: int
    heads: int
    lengths: tuple[tuple[int, int], ...]
    causal: bool | None
    chosen: bool
    padded: bool = False


class Attempted(ProcessAnswer, frozen=True, kw_only=True):
    """What was found of an attempt, and what the function `changed` in torch.

    There is no row where the attempt does not apply to the mechanism.
    """

    row: PanelRow | None
    changed: str = ""


class MakeAttempt(WorkerQuestion[Attempted], frozen=True, kw_only=True):
    """Make one attempt of a user's function, within about `left_s` where it repeats calls."""

    mechanism: str
    form: str
    options: dict[str, Option]
    device: str
    attempt: Attempt
    left_s: float


FINISH = tag_of(Finish.__name__)  # how the last question about a case is called

# every question but the first, which `do` tells apart
Known: TypeAlias = (
    Build
    | Trace
    | Lap
    | Finish
    | MeasureMemory
    | Outputs
    | Probe
    | DescribeMachine
    | Loads
    | Files
    | RunTests
    | HasFunction
    | CollectTests
    | Hold
    | ReadPlan
    | Describe
    | Verify
    | Fit
    | MakeAttempt
)


def read_question(data: Any) -> Known:
    """The question in plain data. Raises `ValueError` if it is none that a worker knows."""
    question: Known = convert(data, Known)
    return question


def of_case(case: Case) -> dict[str, Any]:
    """The fields of `AboutCase` of a case."""
    return {
        "mechanism": case.mechanism,
        "options": case.options,
        "form": case.form,
        "workload": case.workload,
    }


@cache
def answer_of(question: type[ProcessQuestion[A]]) -> type[A]:
    """The class of the answers to questions of a class.

    Raises `TypeError` if the class names none.
    """
    for base in getattr(question, "__orig_bases__", ()):
        for argument in get_args(base):
            if isinstance(argument, type) and issubclass(argument, ProcessAnswer):
                return argument  # type: ignore[return-value]
    raise TypeError(f"{question.__name__} names no answer")


def written(message: ProcessQuestion[Any] | ProcessAnswer | Failure) -> dict[str, Any]:
    """A message as plain data. Raises `TypeError` if something in it is none."""
    data: dict[str, Any] = to_builtins(message, enc_hook=plain)
    if isinstance(message, ProcessAnswer):
        return {"outcome": Outcome.OK.value, **data}
    return data


def plain(value: Any) -> Any:
    """A number or text of a class of its own, such as numpy's, as plain data.

    Raises `TypeError` for anything else.
    """
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"an answer cannot hold a {type(value).__name__}")


def read_answer(data: Any, question: ProcessQuestion[A]) -> A | Failure:
    """The answer to a question in plain data.

    A failure where the data say so, or are no answer to this question.
    """
    try:
        if isinstance(data, dict) and data.get("outcome") == Outcome.OK:
            answer: A = convert(data, answer_of(type(question)))
            return answer
        return convert(data, Failure)
    except (ValueError, RecursionError, OverflowError) as error:
        return impossible(str(error))


def impossible(wrong: str) -> Failure:
    """The failure of a process whose answer would be refused on reading."""
    reason = f"its process gave an impossible answer: {wrong}"
    return Failure(outcome=Outcome.FAILED, reason=reason)
