"""The pieces of a check's text, and a place among them."""

import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)|(?P<name>@?[A-Za-z_]\w*)"
    r'|(?P<text>"[^"]*")|(?P<sign><=|>=|\.\.|[=<>(){}\[\],:*/^+]))'
)


T = TypeVar("T")


class BadCheck(ValueError):
    """A check that does not parse: an error of the data, not of the user."""


class Token(NamedTuple):
    """A piece of the text, what it is, and where it begins."""

    kind: str
    text: str
    at: int


def tokens(text: str) -> list[Token]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise BadCheck(f"at {at + 1}: {text[at:].lstrip()[0]!r} is no part of the grammar")
        kind = str(match.lastgroup)
        found.append(Token(kind, match[kind], match.start(kind) + 1))
        at = match.end()
    return [*found, Token("end", "the end", len(text) + 1)]


class Cursor:
    """A place in the tokens."""

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self.tokens, self.index = tokens, 0

    @property
    def here(self) -> Token:
        return self.tokens[self.index]

    def take(self, *texts: str) -> bool:
        """Whether these words stand here; if so, steps over them."""
        ahead = self.tokens[self.index : self.index + len(texts)]
        if tuple(token.text for token in ahead) != texts:
            return False
        self.index += len(texts)
        return True

    def need(self, text: str) -> None:
        if not self.take(text):
            raise self.expected(repr(text))

    def of(self, kind: str) -> str:
        """The text of a token of that kind."""
        token = self.here
        if token.kind != kind:
            raise self.expected(f"a {kind}")
        self.index += 1
        return token.text

    def expected(self, what: str) -> BadCheck:
        return BadCheck(f"at {self.here.at}: expected {what}, found {self.here.text!r}")


def some(cursor: Cursor, one: Callable[[Cursor], T], between: str) -> tuple[T, ...]:
    found = [one(cursor)]
    while cursor.take(between):
        found.append(one(cursor))
    return tuple(found)


def a_set(cursor: Cursor, one: Callable[[Cursor], T]) -> tuple[T, ...]:
    cursor.need("{")
    found = some(cursor, one, ",")
    cursor.need("}")
    return found


def one_of(cursor: Cursor, texts: tuple[str, ...]) -> str:
    found = cursor.here.text
    if found not in texts:
        raise cursor.expected(f"one of {', '.join(texts)}")
    cursor.take(found)
    return found


def a_name(cursor: Cursor) -> str:
    if cursor.here.text.startswith("@"):
        raise cursor.expected("a name")
    return cursor.of("name")


def a_number(cursor: Cursor) -> float:
    return float(cursor.of("number"))


def a_length(cursor: Cursor) -> int:
    value = a_number(cursor)
    if value < 1 or value != int(value):
        raise cursor.expected("a whole number of tokens before this")
    return int(value)
