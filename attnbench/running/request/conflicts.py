"""Options that have no effect together, or contradict each other."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from attnbench.errors import UsageError
from attnbench.running.request.options import flag


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """Options that must not be given where a condition holds.

    given: names of options, of which one is enough.
    with_: names of options of which one is given too; or whether the condition holds, for one that
        is not about names.
    reason: what the error says, with the way out; `{}` stands for the option that is refused.
    """

    given: Collection[str]
    with_: Collection[str] | bool
    reason: str

    def refused(self, given: Collection[str]) -> str:
        """The first of the options that the user gave in spite of the condition, or nothing."""
        holds = self.with_ if isinstance(self.with_, bool) else any(n in given for n in self.with_)
        return next((name for name in self.given if name in given), "") if holds else ""


def refuse(conflicts: Iterable[Conflict], given: Collection[str]) -> None:
    """Raises `UsageError` at the first conflict among the options that were given, by name."""
    for conflict in conflicts:
        if name := conflict.refused(given):
            raise UsageError(conflict.reason.format(flag(name.strip("_"))))
