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

    def refused_option(self, names: Collection[str]) -> str:
        """Of the user's options, by `names`, the first that the condition rules out, or nothing."""
        holds = self.with_ if isinstance(self.with_, bool) else any(n in names for n in self.with_)
        return next((name for name in self.given if name in names), "") if holds else ""


def refuse(conflicts: Iterable[Conflict], names: Collection[str]) -> None:
    """Raises `UsageError` at the first conflict among the user's options, by their `names`."""
    for conflict in conflicts:
        if name := conflict.refused_option(names):
            raise UsageError(conflict.reason.format(flag(name.strip("_"))))
