"""Shell completion of items of lists, without torch."""

import re
from collections.abc import Callable, Iterable

Known = Callable[[str], Iterable[str]]


def completer(known: Known) -> Callable[[str], list[str]]:
    """A completer of the last item of a list; `known` gives candidates for the text so far."""

    def complete(incomplete: str) -> list[str]:
        *_, last = re.split(r",(?![^\[]*\])", incomplete)
        before = incomplete.removesuffix(last) if last else incomplete
        return [before + word for word in known(last) if word.startswith(last)]

    return complete
