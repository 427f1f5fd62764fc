"""What `judge` tries of a user's kernel, and what it finds: plain data between processes."""

from dataclasses import dataclass
from enum import StrEnum

from attnbench.records.bounds import Dtype, Many, Option, Seconds, Size

AGREES = 1e-2  # an error below which a way to call a function is its own
USUAL_INPUTS = "as usual"  # the name of inputs that no stress changes
GRADIENT = "d"  # begins the name of a gradient among errors: `dq`


class Aspect(StrEnum):
    """Of which quality of a kernel an attempt tells."""

    RIGHT = "right"  # on usual inputs
    STEADY = "steady"  # on inputs that break kernels, and beyond the lengths of the race


class KernelFinding(StrEnum):
    """What one attempt showed of a kernel."""

    PASSED = "passed"
    FEWER_DIGITS = "fewer digits"  # of which a stress may cost half
    REFUSED = "refused"  # it takes no such input, and says so by an exception
    UNTRIED = "not tried"  # as the budget or the memory did not allow it
    IMPRECISE = "imprecise"
    WRONG = "wrong"
    NOT_FINITE = "not finite"
    FAILED = "failed"
    CHANGES_INPUTS = "changes its inputs"
    OTHER_TYPE = "another type"
    VARIES = "varies"  # from call to call
    REMEMBERS = "remembers"  # what it gave for earlier inputs
    NO_ANSWER = "no answer"  # in time


TRIED = frozenset(KernelFinding) - {KernelFinding.REFUSED, KernelFinding.UNTRIED}
PASSING = frozenset(
    {KernelFinding.PASSED, KernelFinding.FEWER_DIGITS, KernelFinding.REFUSED, KernelFinding.UNTRIED}
)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One call of a kernel whose result is compared.

    `inputs` names them: `as usual`, a stress, `masked`. `options` of the mechanism are small ones
    that differ from those asked for. `raced`: its sizes are those of a case of the race.
    `gradients`: whether those are compared too. `repeats`: the same call again and again instead.
    """

    aspect: Aspect
    inputs: str
    tokens: Size
    batch: Many
    width: Size
    heads: Size
    dtype: Dtype
    causal: bool
    masked: bool = False
    raced: bool = False
    gradients: bool = True
    repeats: bool = False
    options: tuple[tuple[str, Option], ...] = ()

    @property
    def is_usual(self) -> bool:
        """Whether its inputs are those that no stress changes."""
        return self.inputs == USUAL_INPUTS


@dataclass(frozen=True, kw_only=True)
class PanelRow:
    """What was found of an attempt.

    `errors` of the kernel, of the mechanism's usual form (`ours`) and what is `allowed`, each by
    what errs: output, a row of it, or the gradient of a tensor. `worst` is one of those names.
    `reason`: what exceeds the allowed error, or an exception. `reference`: the number type of what
    it was compared with. `calls`: how many were compared.
    """

    attempt: Attempt
    finding: KernelFinding
    head_width: int = 0
    errors: dict[str, float]
    ours: dict[str, float]
    allowed: dict[str, float]
    worst: str = ""
    reason: str = ""
    note: str = ""
    reference: str = ""
    calls: int = 1
    took_s: Seconds = 0.0

    @classmethod
    def without(cls, attempt: Attempt, finding: KernelFinding, reason: str) -> "PanelRow":
        """The row of an attempt that compared nothing, for this reason."""
        return cls(attempt=attempt, finding=finding, errors={}, ours={}, allowed={}, reason=reason)

    @property
    def passes(self) -> bool:
        """Whether nothing wrong was found; also of what was not tried."""
        return self.finding in PASSING

    @property
    def tried(self) -> bool:
        """Whether there was something to compare."""
        return self.finding in TRIED

    @property
    def compares_gradients(self) -> bool:
        """Whether the gradient of a tensor is among the errors."""
        return any(name.startswith(GRADIENT) for name in self.errors)


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """How a function is called as a mechanism, and what is to be tried of it.

    `options` are those of its form: the conventions by which it errs least. `ways` are the errors
    of all ways to call it, by a text that names the way. `untaken`: tensors that it does not take.
    `mask`: the parameter for one, with what it means; `uncompared_mask`: a parameter with which
    every call raised, so that nothing is known of it. `modes`: the values of `causal` that it is
    tried with. `refused`: head widths that it does not take, with what it said.
    """

    form: str
    options: dict[str, Option]
    ways: dict[str, float]
    taken: tuple[str, ...]
    untaken: tuple[str, ...]
    modes: tuple[bool, ...]
    mask: str
    uncompared_mask: str = ""
    width: Size
    heads: Size
    head_width: Size
    refused: dict[str, str]
    attempts: tuple[Attempt, ...]

    @property
    def worse_ways(self) -> dict[str, float]:
        """The errors of those ways to call it that are clearly not its own.

        The first of all `ways` is the one by which it errs least.
        """
        (_, least), *others = self.ways.items()
        return {way: error for way, error in others if error > max(least, AGREES)}
