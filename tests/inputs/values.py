"""Arguments for any verb, as strategies, made from its options alone."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from attnbench.mechanisms.catalogue.registry import names
from tests.inputs import texts

Words = st.SearchStrategy[list[str]]
TEXT = st.text(max_size=60) | st.sampled_from((*texts.RUBBISH, *texts.LENGTHS, *texts.MODELS, "\0"))


def anything() -> st.SearchStrategy[str]:
    """Text that an operating system can pass on: without NUL, and naming no folder at large."""
    letters = st.characters(exclude_characters="\0/")
    return st.sampled_from(texts.RUBBISH) | st.text(letters, max_size=30)


def number() -> st.SearchStrategy[str]:
    """Numbers of all sizes, most of them small."""
    whole = st.integers(-3, 5_000) | st.sampled_from((2**31, 2**63, 2**64, 10**18, 10**400))
    parts = st.floats(allow_nan=True, width=16) | st.sampled_from((0.1, 0.5, 0.95, 1.0))
    return whole.map(str) | parts.map(str)


def good(param: Any) -> st.SearchStrategy[str]:
    """A value that the option is meant for."""
    return st.sampled_from(texts.GOOD.get(param.name, ("0", "1", "2", "0.5", "8")))


def value(param: Any) -> st.SearchStrategy[str]:
    """A value that is right but for a letter, of another option, a number, or rubbish."""
    cut = st.tuples(good(param), st.integers(0, 20), st.sampled_from(("", ",", ":", "[", "0")))
    spoilt = cut.map(lambda found: found[0][: found[1]] + found[2] + found[0][found[1] + 1 :])
    return spoilt | models() | lengths() | number() | anything()


def models() -> st.SearchStrategy[str]:
    """Lists in the language of `--models`."""
    name = st.sampled_from((*names(), "@fig2", "synth*", "nothing", "a.py:X", "stack(local+fnet)"))
    form = st.sampled_from(("", "", ":eager", ":*", ":sdpa", ":nope", ":", ":eager:eager"))
    option = st.sampled_from(("rank", "window", "block", "bias", "features", "chunk", "x", "", "ℓ"))
    setting = st.sampled_from(("16", "0", "-1", "1e400", "nan", "true", "none", "…", "", "a=b"))
    pairs = st.lists(st.tuples(option, setting).map("=".join), max_size=3).map(",".join)
    one = st.tuples(name, form, st.just("") | pairs.map("[{}]".format)).map("".join)
    return st.sampled_from(texts.MODELS) | st.lists(one, min_size=1, max_size=3).map(",".join)


def lengths() -> st.SearchStrategy[str]:
    """Lists in the language of `--lengths`."""
    size = st.integers(-1, 4_096).map(str) | st.sampled_from(("1k", "16m", "1g", "", "1e9"))
    step = st.sampled_from(("", ":x2", ":x1", ":+100", ":+1", ":+0", ":", ":x" + "9" * 15))
    span = st.tuples(size, st.just(".."), size, step).map("".join)
    some = st.lists(size | span, min_size=1, max_size=3).map(",".join)
    return st.sampled_from(texts.LENGTHS) | some


def words(params: list[Any]) -> Words:
    """Arguments for a verb with those options: most as they should be, up to two that are not."""
    needed = st.tuples(*(given(param, good) for param in params if is_argument(param)))
    right = st.lists(st.one_of([given(param, good) for param in params]), max_size=4)
    wrong = st.lists(st.one_of([given(param, value) for param in params]), max_size=2)
    return st.tuples(needed, right, wrong).map(
        lambda found: [word for part in found for words in part for word in words]
    )


def wrong(params: list[Any]) -> Words:
    """Only values that are nearly right or rubbish."""
    some = st.lists(st.one_of([given(param, value) for param in params]), min_size=1, max_size=3)
    return some.map(lambda found: [word for words in found for word in words])


def is_argument(param: Any) -> bool:
    """Whether it goes without a name."""
    return bool(param.param_type_name == "argument")


def given(param: Any, values: Callable[[Any], st.SearchStrategy[str]]) -> Words:
    """One option with its value, or an argument."""
    if is_argument(param):
        return values(param).map(lambda text: [text])
    spelt = st.sampled_from([*param.opts, *param.secondary_opts])
    if getattr(param, "is_flag", False):
        return spelt.map(lambda name: [name])
    apart = st.tuples(spelt, values(param)).map(list)
    return apart | apart.map(lambda pair: ["=".join(pair)])
