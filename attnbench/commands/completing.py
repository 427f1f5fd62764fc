"""Completion in bash, whose words end at each `:`, `=` and `@`.

Typer reads the words of a command from COMP_WORDS and prints a whole word for each value. Of
`transformer:ea` bash makes three words and replaces the last one alone. So what belongs together is
joined before Typer reads it, and what stands before the last word is cut from what it prints. Other
shells divide words at spaces only.
"""

import io
import os
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout

INSTRUCTION = "_ATTNBENCH_COMPLETE"
WORDS = "COMP_WORDS"
INDEX = "COMP_CWORD"
BREAK = re.compile("[:=@]+")


def asks_for_bash() -> bool:
    """Whether bash has called the program for completions."""
    return os.environ.get(INSTRUCTION) == "complete_bash" and {WORDS, INDEX} <= set(os.environ)


def complete(program: Callable[[], int]) -> int:
    """Run the program, which prints completions, for bash; return its exit code."""
    text = os.environ[WORDS]
    separator = "\n" if "\n" in text else " "
    words, index, before = joined(text.split(separator), int(os.environ[INDEX]))
    os.environ[WORDS] = "\n".join(words)
    os.environ[INDEX] = str(index)
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            return program()
    finally:
        for line in printed.getvalue().splitlines():
            print(line.removeprefix(before))


def joined(words: Sequence[str], index: int) -> tuple[list[str], int, str]:
    """Words of bash as the shell passes them to a program.

    words: those of the command line, as bash divides it.
    index: of the word at the cursor; one beyond the last where nothing is typed yet.

    Returns the words that belong together as one, the index of the one at the cursor, and what of
    that one stands before the word that bash replaces.
    """
    whole: list[str] = []
    place = 0
    before = ""
    for number, word in enumerate(words[: index + 1]):
        last = whole[-1] if whole else ""
        starts = word.startswith("@") and not last.endswith((",", "="))
        continues = BREAK.fullmatch(word) and not starts
        follows = number > 0 and BREAK.fullmatch(words[number - 1])
        if number > 1 and (continues or follows):
            whole[-1] = last + word
        else:
            whole.append(word)
            last = ""
        place = len(whole) - 1
        before = last + word if BREAK.fullmatch(word) else last
    if index >= len(words):
        return [*whole, ""], place + 1, ""
    # an `@` is a part of what bash replaces, and values are printed without their option
    return whole, place, re.sub("^--?[a-z-]+=", "", before).removesuffix("@")
