"""Selections: what prints parses back, and lists are parted outside brackets."""

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from attnbench.errors import UsageError
from attnbench.records.selection import Selection, layers, mechanisms, option_value, parts, stack_of
from tests.cases import NAMES, OPTIONS
from tests.inputs import values


@given(values.TEXT | values.models())
@example("a" + "[" * 50)
@example("a,[,],b")
def test_parts_lose_nothing(text):
    with suppress(UsageError):
        found = parts(text, "--models")
        assert all(part == part.strip() != "" for part in found)
        strip = str.maketrans("", "", "".join({c for c in text if c.isspace()}))
        assert ",".join(found).translate(strip) == text.translate(strip)


def test_long_lists_are_parted_in_one_pass():
    """With a look ahead from each comma this would take minutes."""
    assert len(parts(",".join(["a"] * 60_000), "--models")) == 60_000
    assert parts("[" * 120_000, "--models") == ["[" * 120_000]


SELECTIONS = st.builds(
    Selection,
    name=NAMES,
    form=st.none() | NAMES,
    options=st.dictionaries(NAMES, OPTIONS, max_size=4).map(lambda found: tuple(found.items())),
)


@given(SELECTIONS)
def test_a_selection_that_prints_parses_back(chosen):
    found = Selection.read(str(chosen))
    assert found == chosen
    kinds = [[type(value) for _, value in each.options] for each in (found, chosen)]
    assert kinds[0] == kinds[1]


@given(st.lists(SELECTIONS.filter(lambda chosen: chosen.name != "stack"), min_size=1, max_size=9))
def test_a_stack_is_read_as_the_layers_that_it_was_named_after(chosen):
    assert layers(stack_of(chosen)) == tuple(chosen)
    assert mechanisms(stack_of(chosen)) == tuple({layer.name: layer for layer in chosen})


def test_neighbours_that_are_alike_are_counted_in_the_name_of_a_stack():
    a, b = Selection(name="a"), Selection(name="b", form="eager", options=(("x", 1),))
    assert stack_of([a, a, b, a]) == "stack(2*a+b:eager[x=1]+a)"
    assert mechanisms("a") == ("a",)
    assert layers("a") == ()


@pytest.mark.parametrize(
    ("text", "name", "form"),
    [
        ("my files/x.py:Mean", "my files/x.py:Mean", None),
        ("x.py:Mean:fast", "x.py:Mean", "fast"),
        ("transformer:x.py:mine", "transformer:x.py", "mine"),
        ("stack(2*a:b+c)", "stack(2*a:b+c)", None),
        ("transformer:e*", "transformer", "e*"),
    ],
)
def test_a_file_keeps_its_colon_and_what_follows_is_a_form(text, name, form):
    assert Selection.read(text) == Selection(name=name, form=form)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x.py", "names a file alone; write x.py:NAME"),
        ("a[b=1,b=2]", "gives an option twice"),
        ("a[b]", "'b' is not of the form option=value"),
        ("a[b=inf]", "b must be finite"),
        ("a[b=1", "is not a name, name:form"),
    ],
)
def test_what_is_no_selection_is_refused_with_the_reason(text, said):
    with pytest.raises(UsageError, match=said):
        Selection.read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("TRUE", True), ("None", None), ("8", 8), ("1e3", 1000.0), ("relu", "relu"), ("1.", 1.0)],
)
def test_the_value_of_an_option_has_the_first_type_that_fits(text, value):
    found = option_value(text)
    assert (found, type(found)) == (value, type(value))
