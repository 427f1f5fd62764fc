import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.claims.claim import (
    Asked,
    Call,
    Check,
    Clause,
    Each,
    Factor,
    Formula,
    Group,
    Lengths,
    Relation,
    Sign,
    Subject,
    Value,
)
from attnbench.claims.cursor import BadCheck
from attnbench.claims.reading import parse
from attnbench.claims.signatures import FOLLOWED, QUANTITIES, SIGNATURES, Kind, signature
from attnbench.records import Level

WORDS = ("and", "at", "for", "in", "on", "minus", "true", "false", "none", "log", "each", "length")
names = st.text(string.ascii_lowercase + "_", min_size=1, max_size=8).filter(
    lambda name: name not in WORDS
)
lengths = st.integers(1, 10**6)
numbers = st.one_of(st.integers(1, 10**6).map(float), st.floats(1e-9, 1e12))
options = st.one_of(st.none(), st.booleans(), st.integers(0, 10**6), names)
some_names = st.lists(names, min_size=1, max_size=3).map(tuple)


def tuples(inner, least=1):
    return st.lists(inner, min_size=least, max_size=3).map(tuple)


subjects = st.builds(
    Subject,
    mechanism=names,
    form=st.none() | names,
    options=tuples(st.tuples(names, tuples(options)), least=0),
)
groups = st.one_of(
    st.builds(Group, name=names.map("@{}".format), minus=tuples(names, least=0)),
    st.builds(Group, members=some_names, minus=tuples(names, least=0)),
)
values = st.builds(Value, over=numbers, under=st.none() | numbers)
factors = st.one_of(
    st.builds(Factor, symbol=names, power=numbers),
    st.builds(Factor, symbol=names, log=st.just(True)),
)
under = st.builds(Factor, symbol=names, power=numbers.map(lambda n: -n))
terms = st.tuples(factors, st.lists(factors | under, max_size=2)).map(lambda t: (t[0], *t[1]))


def calls(its):
    return st.builds(Call, name=st.just(its.name), arguments=st.tuples(*map(argument, its.kinds)))


def argument(kind):
    match kind:
        case Kind.SUBJECT:
            return subjects
        case Kind.GROUP:
            return groups
        case Kind.MODE:
            return st.sampled_from(Asked)
        case Kind.QUANTITY:
            return st.sampled_from(QUANTITIES)
        case Kind.OVER:
            return names
        case Kind.LENGTH:
            return lengths
        case Kind.CALL:
            return st.sampled_from(FOLLOWED).flatmap(lambda name: calls(signature(name)))


def relations(its):
    if its.formula:
        return st.builds(Formula, terms=tuples(terms))
    if not its.signs:
        return st.none()
    return st.sampled_from(its.signs).flatmap(
        lambda sign: st.builds(
            Relation,
            sign=st.just(sign),
            values=st.tuples(*[values] * (1 + (sign is Sign.WITHIN))),
        )
    )


def spans(its):
    if not its.lengths:
        return st.none()
    counts = {Sign.WITHIN: st.tuples(lengths, lengths), Sign.ONE_OF: tuples(lengths)}
    return st.none() | st.sampled_from(its.lengths).flatmap(
        lambda sign: st.builds(
            Lengths, sign=st.just(sign), values=counts.get(sign, st.tuples(lengths))
        )
    )


clauses = st.sampled_from(SIGNATURES).flatmap(
    lambda its: st.builds(
        Clause,
        call=calls(its),
        relation=relations(its),
        lengths=spans(its),
        level=st.none() | st.sampled_from(Level),
        device=st.none() | st.sampled_from(("V100", "GTX 1080 Ti", "and on \\ ünlike")),
        each=st.none() | st.builds(Each, name=names, values=tuples(options)),
    )
)
checks = st.builds(Check, clauses=tuples(clauses))


@settings(max_examples=40)
@given(checks)
def test_the_text_of_a_check_parses_to_the_same_check(check):
    assert parse(str(check)) == check


@settings(max_examples=10)
@given(checks, st.sampled_from((" ", "\t", "\n ")))
def test_space_between_words_says_nothing(check, space):
    assert parse(space + str(check).replace(" ", space) + space) == check or '"' in str(check)


def told(text):
    """The check of a text, or why it is none."""
    try:
        return parse(text)
    except BadCheck as error:
        return str(error)


@given(st.text(string.printable, max_size=60))
def test_any_text_parses_or_is_refused_with_its_place(text):
    found = told(text)
    assert isinstance(found, Check) or found.startswith("at ")


@settings(max_examples=20)
@given(checks, st.data())
def test_a_cut_check_is_refused_or_is_another_check(check, data):
    text = str(check)
    found = told(text[: data.draw(st.integers(0, len(text) - 1))])
    assert parse(str(found)) == found if isinstance(found, Check) else found.startswith("at ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at 1: expected a predicate, found 'the end'"),
        ("quicker(a, b, inference)", "expected a predicate, found 'quicker'"),
        ("faster(a, b)", "expected ',', found ')'"),
        ("faster(a, b, sleeping)", "expected one of inference, training, unprinted, generation"),
        ("faster(a, @fig2, inference)", "at 11: expected a name, found '@fig2'"),
        ("faster(a, b, inference) = 3", "expected 'and' or the end, found '='"),
        ("speedup(a, b, inference) in [1, 2]", "expected one of =, <=, >=, <, >, found 'in'"),
        ("crossover(a, b, inference) <= 512 at 512", "expected 'and' or the end, found 'at'"),
        ("crossover(a, b, inference) in [512 1024]", "expected ','"),
        ("fits(a, training) for length >= 512", "expected lengths as fits takes them"),
        ("faster(a, b, inference) for length >= 1.5", "whole number of tokens"),
        ("order(a, core_flops) N", "expected '=', found 'N'"),
        ("order(a, colour) = N", "expected one of time, memory, core_flops, projection_flops"),
        ("increasing(faster(a, b, inference), length)", "speedup, memory_saving, ratio"),
        ("speedup(a, b, inference) = 1/0 at 512", "another number than 0"),
        ("same(a[x=], b, time, inference)", "expected a name, found ']'"),
        ("faster(a, b; inference)", "';' is no part of the grammar"),
        ("faster(a, b, inference) at level roof", "expected one of core, attention, model"),
    ],
)
def test_a_refusal_says_where_and_what_was_expected(text, words):
    with pytest.raises(BadCheck) as error:
        parse(text)
    assert words in str(error.value)


def test_each_puts_its_values_in_mechanisms_and_options():
    (clause,) = parse("order(m, memory) = N for each m in {performer, linformer}").clauses
    assert [str(part) for part in clause.expanded] == [
        "order(performer, memory) = N",
        "order(linformer, memory) = N",
    ]
    text = "increasing(speedup(linformer[rank=k], b, inference), length) for each k in {1, none}"
    (clause,) = parse(text).clauses
    assert [str(part) for part in clause.expanded] == [
        "increasing(speedup(linformer[rank=1], b, inference), length)",
        "increasing(speedup(linformer[rank=none], b, inference), length)",
    ]


def test_a_check_names_its_mechanisms_once():
    check = parse(
        "fastest(a, {b, c}, inference) and order(m, memory) = N for each m in {a, d}"
        " and increasing(speedup(e, f:eager, training), length)"
    )
    assert check.mechanisms == ("a", "b", "c", "d", "e", "f")
