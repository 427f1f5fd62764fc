"""Shell completion without torch: for items of lists, and for words that bash splits."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO

BASH = ("_ATTNBENCH_COMPLETE", "complete_bash")
BREAKS = ":=@"  # where bash ends a word; names of mechanisms contain them

Known = Callable[[str], Iterable[str]]


def completer(known: Known) -> Callable[[str], list[str]]:
    """A completer of the last item of a list; `known` gives candidates for the text so far."""

    def complete(incomplete: str) -> list[str]:
        *_, last = re.split(r",(?![^\[]*\])", incomplete)
        before = incomplete.removesuffix(last) if last else incomplete
        return [before + word for word in known(last) if word.startswith(last)]

    return complete


@contextmanager
def rejoin_bash_words() -> Iterator[None]:
    """While bash asks for completions, join the words that it split, and cut answers to match.

    Bash passes `transformer:ea` as three words, and replaces only the last of them.
    """
    if os.environ.get(BASH[0]) != BASH[1]:
        yield
        return
    words = os.environ.get("COMP_WORDS", "").split("\n")
    joined, current = rejoined(words, int(os.environ.get("COMP_CWORD", "0")))
    os.environ |= {"COMP_WORDS": "\n".join(joined), "COMP_CWORD": str(current)}
    typed = re.sub(r"^--[\w-]+=", "", joined[current]) if current < len(joined) else ""
    # bash replaces what follows a break, and `@` itself too
    kept = re.sub(r"(@|)[^:=@]*$", "", typed)
    answers = StringIO()
    try:
        with redirect_stdout(answers):
            yield
    finally:
        for line in answers.getvalue().splitlines():
            print(line.removeprefix(kept))


def rejoined(words: Sequence[str], current: int) -> tuple[list[str], int]:
    """The words as typed, of which bash split some, and the index of the current one."""
    joined: list[str] = []
    at = 0
    for number, word in enumerate(words):
        before = joined[-1] if joined else ""
        after_break = before.endswith(tuple(BREAKS)) and word != ""
        goes_on = word.startswith((":", "=")) or (word.startswith("@") and before.endswith(","))
        if joined and (after_break or goes_on):
            joined[-1] += word
        else:
            joined.append(word)
        if number <= current:
            at = len(joined) - 1
    return joined, at if current < len(words) else len(joined)
