"""The language of checks: what is read, what is refused, and that nothing ever runs."""

import ast
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.claims import costs
from attnbench.claims.checks import FUNCTIONS, LONGEST, BadCheck, read_check
from attnbench.claims.claim import (
    Call,
    ClaimedCost,
    ClaimedGroup,
    ClaimedMode,
    ClaimedSeries,
    Formula,
    Lengths,
    Relation,
    Sign,
)
from attnbench.claims.published import shipped
from attnbench.records import Level

SHIPPED = sorted({claim.text for claim in shipped()})


def one(text):
    (call,) = read_check(text)
    return call


def test_a_call_has_its_arguments_by_the_names_of_the_signature():
    assert one("faster(linformer(rank=128), transformer.eager, training, N > 256)") == Call(
        function=costs.faster,
        arguments={
            "a": ClaimedSeries(mechanism="linformer", options=(("rank", (128,)),)),
            "b": ClaimedSeries(mechanism="transformer", form="eager"),
            "mode": ClaimedMode.TRAINING,
            "lengths": Lengths(text="N > 256", low=257),
        },
    )
    named = one("faster(b=transformer.eager, a=linformer, mode=training)")
    assert list(named.arguments) == ["a", "b", "mode"]


def test_a_quantity_is_compared_with_a_number():
    call = one("speedup(a, b, inference, N == 512) >= 25/30")
    assert call.function is costs.compare
    assert call.arguments["relation"] == Relation(sign=Sign.AT_LEAST, values=(25 / 30,))
    assert call.arguments["of"].function is costs.speedup
    assert call.mode is ClaimedMode.INFERENCE
    within = one("2 <= ratio(a, b, memory, training) <= 3").arguments
    assert within["relation"] == Relation(sign=Sign.WITHIN, values=(2, 3))
    assert within["of"].arguments["quantity"] is ClaimedCost.MEMORY


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("N", ((1, 0),)),
        ("N**2*d_s + N*K*D", ((2, 0), (1, 0))),
        ("N*log(N)", ((1, 1),)),
        ("N*d/eps**2", ((1, 0),)),
        ("K*N**1.5/N", ((0.5, 0),)),
        ("b**2 + log(b)", ((0, 0), (0, 0))),
    ],
)
def test_a_formula_is_reduced_to_powers_of_the_length(text, terms):
    formula = one(f"order(a, core_flops) == {text}").arguments["formula"]
    assert formula == Formula(text=ast.unparse(ast.parse(text)), terms=terms)


@pytest.mark.parametrize("value", [True, None, "word", 1, 0.5])
def test_options_are_constants_or_words(value):
    (pair,) = one(f"no_causal_form(a(x={value!r}))").arguments["a"].options
    assert pair == ("x", (value,))


def test_options_may_be_spelled_as_on_the_command_line():
    options = one("no_causal_form(a(x={true, none, dense, 3}))").arguments["a"].options
    assert options == (("x", (True, None, "dense", 3)),)


def test_a_claim_may_be_restricted_to_a_level_and_a_device():
    call = one('fits(a, training, 512, level=core, on="GTX 1080 Ti")')
    assert (call.level, call.device) == (Level.CORE, "GTX 1080 Ti")


def test_all_repeats_an_assertion_and_and_joins_several():
    assert read_check(
        "all(oom(m.eager, training, 8) for m in {a, b}) and fits(c, training, 8)"
    ) == (
        one("oom(a.eager, training, 8)"),
        one("oom(b.eager, training, 8)"),
        one("fits(c, training, 8)"),
    )
    assert read_check("all(no_causal_form(a(rank=k)) for k in {1, none})") == (
        one("no_causal_form(a(rank=1))"),
        one("no_causal_form(a(rank=none))"),
    )


def test_a_call_names_its_subjects():
    call = one("fastest(a, {b, c}, inference)")
    assert [subject.mechanism for subject in call.subjects] == ["a", "b", "c"]
    assert call.arguments["among"] == ClaimedGroup(("b", "c"))
    inner = one("increasing(speedup(e, f.eager, training))")
    assert [str(subject) for subject in inner.subjects] == ["e", "f:eager"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a Python expression"),
        ("faster(a, b", "was never closed; expected a Python expression"),
        ("faster(a, b, inference) or faster(b, a, inference)", "expected an assertion such as"),
        ("quicker(a, b)", "character 1: no predicate 'quicker'; expected one of faster, less_mem"),
        ("print.x(a)", "no predicate 'print.x'"),
        ("faster(a, b)", "missing a required argument: 'mode'; expected faster(a, b, mode, [leng"),
        ("faster(a, b, inference, N > 2, 3)", "too many positional arguments; expected faster(a"),
        ("faster(a, b, inference, colour=3)", "unexpected keyword argument 'colour'; expected f"),
        ("faster(a, b, inference, a=c)", "multiple values for argument 'a'"),
        ("faster(a=a, a=c, b=b, mode=inference)", "an argument is given twice"),
        ("faster(**a)", "expected faster(a, b, mode, [lengths])"),
        ("faster(3, b, inference)", "character 8: faster: a is 3; expected a mechanism such as"),
        ("faster(a(128), b, inference)", "a is a(128); expected a mechanism"),
        ("faster(a.b.c, b, inference)", "a is a.b.c; expected a mechanism"),
        ("same(a(x=-1), b, time, inference)", "a is a(x=-1); expected a mechanism"),
        ("faster(a, b, sleeping)", "mode is sleeping; expected one of inference, training, unpr"),
        ("same(a, b, colour, inference)", "expected one of time, memory, state, first_token, core"),
        ("faster(a, b, inference, 512)", "lengths is 512; expected lengths such as N >= 512"),
        ("faster(a, b, inference, N >= 1.5)", "expected lengths such as"),
        ("faster(a, b, inference, 4 <= N <= 2)", "expected lengths such as"),
        ("faster(a, b, inference, N != 2)", "expected lengths such as"),
        ("fits(a, training, N <= 512)", "length is N <= 512; expected a whole number of tokens"),
        ("fits(a, training, True)", "expected a whole number of tokens"),
        ("fastest(a, b, training)", "among is b; expected mechanisms in braces"),
        ("increasing(faster(a, b, inference))", "expected a ratio such as speedup(a, b, inferen"),
        ("increasing(speedup(a, b, on='x', mode=training))", "unexpected keyword argument 'on'"),
        ("faster(a, b, inference) == 3", "expected faster(a, b, mode, [lengths]) without a comp"),
        (
            "speedup(a, b, inference)",
            "compared as … == x, … <= x, … >= x, … < x, … > x, x <= … <= y, w",
        ),
        ("speedup(a, b, inference) == 0", "with positive numbers"),
        ("speedup(a, b, inference) == 1/0", "with positive numbers"),
        ("speedup(a, b, inference) == 1e999", "with positive numbers"),
        ("3 <= speedup(a, b, inference) <= 2", "with positive numbers"),
        ("speedup(a, b, inference) is 3", "expected an assertion such as"),
        ("crossover(a, b, inference) >= 512", "as … == x, … <= x, x <= … <= y, with positive"),
        (
            "max_length(a, inference) <= 512",
            "expected max_length(a, mode) compared as … == x, with",
        ),
        ("order(a, core_flops)", "expected order(a, quantity) == a sum of products such as N**2"),
        ("order(a, core_flops) <= N", "expected order(a, quantity) == a sum of products"),
        ("order(a, core_flops) == N - 1", "a sum of products"),
        ("order(a, core_flops) == N**99", "a sum of products"),
        ("order(a, core_flops) == N/log(N)", "a sum of products"),
        ("faster(a, b, inference, level=roof)", "expected one of core, attention, model"),
        ("faster(a, b, inference, on=V100)", "on is V100; expected a text such as"),
        ("all(no_causal_form(m) for m in list)", "expected one all(… for m in {performer, lin"),
        ("all(all(oom(m, training, k) for m in {a}) for k in {1})", "expected one all("),
        ("fits(a, training, 8)" + " " * LONGEST + ")", "characters; expected at most 2,000"),
        ("-" * 1500 + "a", "expected"),
        ("(" * 900 + "a" + ")" * 900, "expected a Python expression"),
    ],
)
def test_an_error_says_where_and_what_was_expected(text, words):
    with pytest.raises(BadCheck) as error:
        read_check(text)
    assert words in str(error.value)


def test_numbers_too_large_for_the_parser_are_refused():
    for digits in (400, 1_900):
        with pytest.raises(BadCheck, match="expected"):
            read_check("fits(a, training, " + "9" * digits + ")")


HOSTILE = (
    "__import__('os').system('touch {}')",
    "open({!r}, 'w').write('x')",
    "().__class__.__base__.__subclasses__()",
    "(lambda: open({!r}, 'w'))()",
    "[open({!r}, 'w') for _ in '1']",
    "print(9**9**9)",
    "breakpoint()",
)


@given(
    st.sampled_from(HOSTILE),
    st.sampled_from(
        (
            "{}",
            "faster({}, b, inference)",
            "faster(a, b, {})",
            "fits(a, training, {})",
            "speedup(a, b, inference, N == {}) == 2",
            "speedup(a, b, inference, N == 2) == {}",
            "order(a, time) == {}",
            "no_causal_form(a(x={}))",
            "all(no_causal_form(m) for m in {{{}}})",
            "all(no_causal_form(m) for m in {})",
            "{}(a, b, inference)",
            "faster(a, b, inference, level={})",
            "faster(a, b, inference) and {}",
        )
    ),
)
@settings(max_examples=90)
def test_hostile_text_never_runs(tmp_path_factory, inner, outer):
    mark = tmp_path_factory.getbasetemp() / "ran"
    with pytest.raises(BadCheck):
        read_check(outer.format(inner.format(str(mark))))
    assert not mark.exists()


def reads_or_refuses(text):
    try:
        calls = read_check(text)
    except BadCheck as error:
        return str(error).count("expected") > 0
    return len(calls) > 0 and all(isinstance(call, Call) for call in calls)


def test_a_long_sum_is_read_or_refused():
    for count in (10, 300, 990):
        assert reads_or_refuses("order(a, memory) == " + "+".join("N" * count))


WORDS = st.sampled_from(
    (
        *FUNCTIONS,
        *ClaimedMode,
        *ClaimedCost,
        *Level,
        "all",
        "for",
        "in",
        "and",
        "N",
        "a",
        "on",
        "log",
    )
    + ("(", ")", "{", "}", ",", ",", ".", "=", "==", "<=", ">=", "**", "/", "+", "not", "lambda")
    + ("1", "0", "1e9", "1e999", "512", "'x'", "b'x'", "1j", "...", "True", "None", "*", "f'{a}'")
)


@given(st.lists(WORDS, max_size=30).map(" ".join))
@settings(max_examples=300)
def test_any_words_are_read_or_refused(text):
    assert reads_or_refuses(text)


@given(st.text(max_size=60) | st.text(string.printable, max_size=60))
def test_any_text_is_read_or_refused(text):
    assert reads_or_refuses(text)


@given(st.sampled_from(SHIPPED), st.data())
@settings(max_examples=300)
def test_a_changed_check_is_read_or_refused(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 12)))
    assert reads_or_refuses(text[:start] + data.draw(st.just("") | WORDS) + text[end:])


@given(st.sampled_from(SHIPPED))
@settings(max_examples=20)
def test_space_between_words_has_no_meaning(text):
    wide = text.replace(", ", " ,  ").replace("(", "( ")
    assert read_check(f"  {wide}\n") == read_check(text) or "N" in text
