"""What predicates answer of a sweep whose true costs are known, and how answers are joined."""

from dataclasses import replace
from operator import eq, ge, gt, le, lt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.analysis.scaling import crossovers
from attnbench.claims.bench import agreed, all_hold, judge
from attnbench.claims.checks import PREDICATES, BadCheck, parse_lengths
from attnbench.claims.claim import (
    ALL,
    FACTOR,
    NEAR,
    Answer,
    Claim,
    ClaimedCost,
    Judgement,
    Number,
    OutOfScope,
)
from attnbench.claims.judging import holds_everywhere
from attnbench.claims.published import table
from attnbench.metrics import Unit
from attnbench.records import Level, Mode
from tests.claims.claimed import LAB, Truth, bench, check, measured

REPRODUCED, NOT, CANNOT_TELL, OUT = Answer

# true ratio in the lab: how much slower eager is than fastformer
SLOWER = {n: 1 + n / 700 for n in (1024, 4096, 8192)}

GROWN = 4 * SLOWER[4096] / SLOWER[1024]

SAVING = "ratio | transformer:eager | transformer:flash | memory"
RATIO = "ratio | transformer:eager | fastformer | time | inference"

# cells of checks, in their order
CASES = [
    ("less | fastformer | transformer:eager | time | inference | >= 512", REPRODUCED),
    ("less | fastformer | transformer:eager | time | inference | 1000", REPRODUCED),
    ("less | transformer:eager | fastformer | time | inference | >= 512", NOT),
    ("less | longformer | bigbird | time | inference | >= 512", CANNOT_TELL),
    ("less | fastformer | transformer:eager | time | inference | > 2048", CANNOT_TELL),
    ("less | performer | transformer:eager | time | inference | >= 512", OUT),
    ("less | fastformer | transformer:flex | time | inference | >= 512", OUT),
    ("less | fastformer | linformer[rank=64] | time | inference | >= 512", OUT),
    ("less | fastformer | transformer:eager | time | inference | >= 65536", OUT),
    ("less | fastformer | transformer:eager | time | inference | 700", OUT),
    ("less | fastformer | transformer:eager | time | decode | >= 512", OUT),
    ("less | fastformer | transformer:eager | time | inference | 512 | | core", OUT),
    ("less | fastformer | transformer:eager | time | inference | 512 | | | A100", OUT),
    ("less | transformer:flash | transformer:eager | memory | training | >= 128", REPRODUCED),
    ("less | longformer | bigbird | memory | training | >= 128", CANNOT_TELL),
    ("less | fastformer | linformer,longformer | time | inference | >= 512", REPRODUCED),
    ("less | linformer | fastformer,performer | time | inference | >= 512", NOT),
    ("less | fastformer | linformer,performer | time | inference | >= 512", CANNOT_TELL),
    ("less | linformer,fastformer | longformer | time | inference | >= 512", REPRODUCED),
    ("less | linformer,longformer | fastformer | time | inference | >= 512", NOT),
    ("less | fastformer | linformer,longformer | memory | training | 4000", REPRODUCED),
    ("less | linformer[rank=128] | linformer[rank=256] | time | inference", REPRODUCED),
    ("less | fastformer | fastformer | core_flops/projection_flops", REPRODUCED),
    ("less | fastformer | fastformer | projection_flops/core_flops", NOT),
    ("less | longformer | bigbird | time | inference | >= 128 | 1.1", REPRODUCED),
    ("less | linformer | fastformer | time | inference | >= 128 | 1.1", NOT),
    ("less | poolingformer | bigbird | time | inference | >= 128 | 1.1", CANNOT_TELL),
    ("crossover | fastformer | transformer:eager | | inference | | >= 1024", REPRODUCED),
    ("crossover | transformer:eager | fastformer | | inference | | >= 1024", NOT),
    (
        "crossover | transformer:eager | longformer[window=256] | | inference | | 1024..2048",
        REPRODUCED,
    ),
    ("crossover | transformer:eager | longformer[window=256] | | inference | | 1000", REPRODUCED),
    ("crossover | transformer:eager | fastformer | | inference | | <= 512", REPRODUCED),
    ("crossover | transformer:eager | longformer | | inference | | 256..512", NOT),
    ("crossover | transformer:eager | longformer | | inference | | <= 512", NOT),
    ("crossover | transformer:eager | fastformer | | inference | | 1024..2048", NOT),
    ("crossover | fastformer | transformer:eager | | inference | | <= 512", NOT),
    ("crossover | transformer:eager | longformer | | inference | | 1024..1400", CANNOT_TELL),
    ("crossover | longformer | bigbird | | inference | | <= 512", CANNOT_TELL),
    ("crossover | transformer:eager | fastformer | | inference | | 64..2048", CANNOT_TELL),
    ("crossover | transformer:eager | longformer | | inference | | 32768..65536", OUT),
    ("crossover | transformer:eager | longformer | | inference | | <= 65536", OUT),
    ("crossover | transformer:eager | fastformer | | inference | | <= 64", OUT),
    (f"{RATIO} | 8192 | {SLOWER[8192]}", REPRODUCED),
    (f"{RATIO} | 8192 | > 10", REPRODUCED),
    (f"{RATIO} | 8192 | 200", NOT),
    ("ratio | fastformer | transformer:eager | time | inference | 128 | 6/5", NOT),
    (f"{RATIO} | 8192 | > {SLOWER[8192]}", CANNOT_TELL),
    (f"{RATIO} | > 2048 | > 2", CANNOT_TELL),
    ("ratio | transformer:eager | fastformer | time | decode | 8192 | > 300", OUT),
    (f"{RATIO} | | > 300", OUT),
    (f"{SAVING} | training | 4096 | 100", NOT),
    (f"{SAVING} | training | 4096 | 10", REPRODUCED),
    (f"{SAVING} | inference | > 2048 | 10", CANNOT_TELL),
    (f"{SAVING} | training | 65536 | 10", OUT),
    ("ratio | fastformer | transformer:eager | time | | <= 512 | 25/30", REPRODUCED),
    ("ratio | fastformer | transformer:eager | memory | training | 4096 | 25/30", NOT),
    (f"{RATIO} | <= 512 | < 1", NOT),
    (f"{RATIO} | 128 | 25/30", NOT),
    (f"{RATIO} | 1024 | < {SLOWER[1024]}", CANNOT_TELL),
    ("ratio | fastformer | performer | time | | <= 512 | 1", OUT),
    ("growth | transformer:eager | | time | training | 1000..4000 | 10", REPRODUCED),
    ("growth | transformer:flash | | memory | training | 1024..8192 | 8", REPRODUCED),
    ("growth | fastformer | | time | training | 1000..4000 | 9.5/8", NOT),
    (f"growth | transformer:eager | | time | training | 1024..4096 | > {GROWN}", CANNOT_TELL),
    ("growth | fastformer | | time | training | 1024..65536 | 64", OUT),
    ("increasing | transformer:eager | fastformer | time | inference | >= 512", REPRODUCED),
    ("increasing | fastformer | transformer:eager | memory | training | >= 128", NOT),
    ("increasing | bigbird | longformer | time | inference", CANNOT_TELL),
    ("increasing | transformer:eager | performer | time | inference", OUT),
    ("oom | transformer:eager | | | training | 65536", REPRODUCED),
    ("oom | transformer:eager | | | training | 4096", NOT),
    ("oom | poolingformer | | | training | 8192", CANNOT_TELL),
    ("oom | performer | | | training | 8192", OUT),
    ("fits | fastformer | | | training | 8192", REPRODUCED),
    ("fits | transformer:eager | | | training | 8192", NOT),
    ("fits | poolingformer | | | training | 8192", CANNOT_TELL),
    ("fits | transformer:eager | | | | 8192", CANNOT_TELL),
    ("fits | fastformer | | | training | 65536", OUT),
    ("throughput | transformer:eager | | | inference | | <= 230 | core", OUT),
    ("order | transformer | | core_flops | | | N**2*d", REPRODUCED),
    ("order | smart_bird | | core_flops | | | N**2*d_s + N*K*D", REPRODUCED),
    ("order | reformer | | core_flops | | | N*log(N)", REPRODUCED),
    ("order | fastformer | | memory | | | N", REPRODUCED),
    ("order | fastformer | | core_flops | | | N**2*d_s + N*K*D", NOT),
    ("order | transformer:eager | | memory | | | N**2", CANNOT_TELL),
    ("order | fastformer | | core_flops | | | b**2", OUT),
    ("order | performer | | core_flops | | | N", OUT),
    ("order | transformer | | core_flops | | | N**1.5", NOT),
    ("no_causal_form | linformer", REPRODUCED),
    ("no_causal_form | transformer", NOT),
    ("no_causal_form | performer", OUT),
]

CORE = [
    ("throughput | transformer:eager | | | inference | | <= 230", REPRODUCED),
    ("throughput | transformer:eager | | | | | >= 230", NOT),
    (
        f"throughput | transformer:eager | | | inference | | <= {8.388608 / SLOWER[8192]}",
        CANNOT_TELL,
    ),
]

FEW = {
    series: LAB[series]
    for series in (
        "transformer:eager",
        "transformer:sdpa",
        "fastformer:eager",
        "longformer:eager[window=256]",
    )
}

# exact, so that no interval leaves an answer open
DECIDED = {("no_causal_form", CANNOT_TELL)}

# steps: their times, what they keep, and the pass before them, of 1e-7 · N² seconds over 1e-5
STEPS = [
    ("growth | linformer | | time | decode | 512..8192 | 1", REPRODUCED),
    ("growth | linformer | | state | decode | 512..8192 | 1..1.01", REPRODUCED),
    ("growth | transformer | | state | decode | 512..8192 | 1..1.01", NOT),
    ("order | transformer | | state | decode | | N*d", REPRODUCED),
    ("order | linformer | | state | decode | | N*d", NOT),
    ("ratio | transformer | fastformer | state | decode | >= 1 | 3.99..4.01", REPRODUCED),
    ("ratio | fastformer | transformer | state | decode | >= 1 | 3.99..4.01", NOT),
    ("ratio | transformer | linformer | first_token/time | decode | 8192 | > 6e5", REPRODUCED),
    ("ratio | transformer | linformer | first_token/time | decode | 8192 | > 7e5", NOT),
    ("ratio | transformer | linformer | first_token/time | decode | > 2048 | > 100", CANNOT_TELL),
    ("ratio | transformer | linformer | first_token/time | decode | | > 6e5", OUT),
    ("ratio | performer | linformer | first_token/time | decode | 8192 | > 6e5", OUT),
    ("order | transformer | | core_flops | | | N**2", OUT),
    ("less | linformer | transformer | time | | >= 128", OUT),
]


def claim(text):
    return Claim(id="a", source="b", claim="c", scope="d", checks=(check(text),))


def together(sweep, texts):
    """The judgement of each check."""
    found = judge(bench(sweep), [claim(text) for text in texts])
    return {text: one.judgement for text, one in zip(texts, found, strict=True)}


def judged(sweep, text):
    return together(sweep, [text])[text]


@pytest.fixture(scope="module")
def lab():
    return measured()


@pytest.fixture(scope="module")
def prepared(lab):
    return bench(lab)


@pytest.fixture(scope="module")
def answers_of(lab):
    truths = {
        "transformer:sdpa": Truth(seconds=lambda n: 1e-6 * n, state=lambda n: 2048.0 * n),
        "fastformer:eager": Truth(seconds=lambda n: 1e-6 * n, state=lambda n: 512.0 * n),
        "linformer:eager": Truth(seconds=lambda n: 1e-5, state=lambda n: 4096.0),
    }
    steps = measured(truths, modes=(Mode.DECODE,), level=Level.ATTENTION)
    return {
        "lab": together(lab, [text for text, _ in CASES]),
        "core": together(measured(level=Level.CORE), [text for text, _ in CORE]),
        "steps": together(steps, [text for text, _ in STEPS]),
    }


@pytest.fixture(scope="module")
def found_in_one_round():
    return together(measured(rounds=1), [text for text, _ in CASES])


@pytest.mark.parametrize(
    ("sweep", "text", "answer"),
    [("lab", *case) for case in CASES]
    + [("core", *case) for case in CORE]
    + [("steps", *case) for case in STEPS],
)
def test_each_predicate_has_its_answers(answers_of, sweep, text, answer):
    found = answers_of[sweep][text]
    assert found.answer is answer, found
    if answer is not OUT:
        assert (found.lengths and found.numbers) or "causal" in text
    if answer in (CANNOT_TELL, OUT):
        assert found.why


def test_every_predicate_is_explained_and_tested_for_each_answer():
    tested = {(text.split(" ")[0], answer) for text, answer in CASES + CORE + STEPS}
    assert {(name, a) for name in PREDICATES for a in Answer} - tested == DECIDED
    assert all(predicate.__doc__ for predicate in PREDICATES.values())


def test_numbers_come_with_their_intervals_and_lengths(lab):
    found = judged(lab, "less | fastformer | transformer:eager | time | inference | >= 2048")
    assert found.lengths == (2048, 4096, 8192)
    weakest = found.numbers[0]
    assert weakest.what == "time of transformer:eager over fastformer:eager, inference"
    assert weakest.length == 2048
    assert weakest.value == pytest.approx(1 + 2048 / 700, rel=1e-6)
    assert weakest.low < weakest.value < weakest.high
    crossing = judged(lab, "crossover | transformer:eager | longformer | | inference | | <= 2048")
    assert crossing.numbers[0].value == pytest.approx(1400, rel=0.03)


def test_a_crossing_that_may_lie_before_the_shortest_length_cannot_be_judged():
    near = Truth(seconds=lambda n: 2.6e-6 * n)  # eager costs as much at 1,120 tokens
    truths = FEW | {"longformer:eager[window=256]": near}
    sweep = measured(truths, lengths=(1024, 2048, 4096), spread=0.05)
    crossing = "crossover | transformer:eager | longformer | | inference | | {}..4096"
    found = judged(sweep, crossing.format(1024))
    assert found.answer is CANNOT_TELL
    assert found.numbers[0].low == 1024
    assert judged(sweep, crossing.format(0.5)).answer is CANNOT_TELL
    wider = measured(truths, spread=0.05)
    assert judged(wider, crossing.format(512)).answer is REPRODUCED


def test_the_number_that_contradicts_comes_first(lab):
    found = judged(lab, "less | transformer:eager | longformer | time | inference | >= 128")
    assert found.numbers[0].length == 8192
    assert found.why == "not true at 2,048, 4,096, 8,192"


@pytest.mark.parametrize(
    "text",
    [
        "less | fastformer | transformer:eager | time | inference | >= 512",
        "crossover | transformer:eager | longformer | | inference | | 1024..2048",
        "ratio | transformer:eager | fastformer | time | inference | 8192 | 12",
    ],
)
def test_a_noisy_sweep_cannot_tell(text):
    assert judged(measured(FEW, spread=2.0), text).answer is CANNOT_TELL


@pytest.mark.parametrize("text", [text for text, answer in CASES if answer is REPRODUCED])
def test_one_round_without_an_interval_reproduces_nothing_timed(found_in_one_round, text):
    counted = any(word in text for word in ("memory", "core", "causal", "oom", "fits"))
    assert found_in_one_round[text].answer is (REPRODUCED if counted else CANNOT_TELL)


def test_every_claim_is_out_of_scope_for_a_sweep_without_a_plan(lab):
    empty = replace(lab, plan=(), runs=(), cards=())
    found = together(empty, [text for text, _ in CASES])
    assert {judgement.answer for judgement in found.values()} == {OUT}


def test_too_few_lengths_cannot_decide_an_order():
    few = measured(FEW, lengths=(1024, 2048, 4096))
    assert judged(few, "order | transformer | | core_flops | | | N**2").answer is CANNOT_TELL


def test_flash_is_the_best_form_that_stores_no_weights():
    text = "less | transformer:flash | transformer:eager | time | inference | >= 512"
    slow = {"transformer:flex": Truth(seconds=lambda n: 1e-3 * n)}
    assert judged(measured(slow | FEW), text).answer is REPRODUCED
    for kernel, answer in (("flash_attention", REPRODUCED), ("attention_math", OUT)):
        truths = FEW | {"transformer:sdpa": replace(LAB["transformer:sdpa"], kernel=kernel)}
        assert judged(measured(truths), text).answer is answer


def test_a_rival_that_ran_out_leaves_its_length_to_the_others(lab):
    text = "less | fastformer | transformer,poolingformer | time | training | >= 512"
    found = judged(lab, text)
    assert found.answer is REPRODUCED
    # poolingformer was skipped at 8,192 and nothing is known of it; eager ran out of memory
    assert found.lengths == (512, 1024, 2048, 4096)


@pytest.mark.parametrize(
    ("answers", "whole", "of_modes"),
    [
        ((REPRODUCED, REPRODUCED), REPRODUCED, REPRODUCED),
        ((REPRODUCED, NOT), NOT, CANNOT_TELL),
        ((OUT, NOT), NOT, NOT),
        ((CANNOT_TELL, NOT), NOT, CANNOT_TELL),
        ((REPRODUCED, CANNOT_TELL), CANNOT_TELL, CANNOT_TELL),
        ((REPRODUCED, OUT), CANNOT_TELL, REPRODUCED),
        ((OUT, OUT), OUT, OUT),
    ],
)
def test_all_checks_must_hold_and_modes_agree(answers, whole, of_modes):
    parts = [Judgement(answer=answer, why=str(answer)) for answer in answers]
    assert agreed(parts).answer is of_modes
    assert all_hold(parts).answer is all_hold(parts[::-1]).answer is whole
    # what decides comes first
    assert all_hold(parts).why.startswith(str(whole)) or whole is CANNOT_TELL


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0.001, 3)), min_size=3, max_size=8))
def test_intervals_decide(pairs):
    middle, half = np.array(pairs).T
    low, high = middle - half, middle + half
    numbers = [Number(what="", unit=Unit.RATIO, value=1.0, length=n) for n in range(len(pairs))]
    found = holds_everywhere(low, high, numbers, ALL).answer
    if high.min() < 0:
        assert found is NOT
    else:
        assert found is (REPRODUCED if low.min() > 0 else CANNOT_TELL)


@pytest.mark.parametrize(
    ("text", "chosen"), [("1000,2000,3000,4000", [1024, 2048, 4096]), ("1000..2000", [1024, 2048])]
)
def test_lengths_of_a_claim(text, chosen):
    assert parse_lengths(text).among([512, 1024, 2048, 4096]) == chosen


@given(
    st.integers(1, 10**6),
    st.sampled_from(("<", "<=", "", ">=", ">")),
    st.lists(st.integers(1, 10**6), min_size=1, unique=True),
)
def test_lengths_are_within_a_tenth_of_what_was_asked(length, sign, there):
    try:
        chosen = parse_lengths(f"{sign}{length}").among(sorted(there))
    except OutOfScope:
        chosen = []
    compare = {"<": lt, "<=": le, "": eq, ">=": ge, ">": gt}[sign]
    assert set(chosen) >= {n for n in there if compare(n, length)}
    assert chosen or sign or all(max(n, length) / min(n, length) > NEAR for n in there)
    assert all(compare(n, length) or max(n, length) / min(n, length) < NEAR + 1e-9 for n in chosen)


def test_claims_and_reports_find_the_same_crossings(lab):
    found = bench(lab)
    cases = found.cases.assign(time_df=np.where(found.cases["seq_len"] > 1024, 2.0, 8.0))
    found = replace(found, cases=cases)
    rows = crossovers(cases, ratios=found.ratios).set_index(["mode", "series", "other"])
    text = "crossover | transformer:eager | longformer | | inference | | <= 4096"
    (number,) = judge(found, [claim(text)])[0].judgement.numbers
    row = rows.loc[("inference", "longformer:eager[window=256]", "transformer:eager")]
    assert (number.value, number.low, number.high) == tuple(row[["length", "low", "high"]])


SERIES = ("", "transformer", "transformer:flash", "longformer[window=256]")
SERIES += ("absent", "local,absent")
NUMBERS = ("", "1", "128", "1000..4096", ">= 65536", "<= 1e-9", "1,2e15", "N**9*log(N)", "N + K/N")


@settings(max_examples=300, deadline=None)
@given(
    st.tuples(
        st.sampled_from(sorted(PREDICATES)),
        st.sampled_from(SERIES[1:]),
        st.sampled_from(SERIES),
        st.sampled_from(("", *ClaimedCost, "first_token/time")),
        st.sampled_from(("", *Mode)),
        st.sampled_from(NUMBERS),
        st.sampled_from(NUMBERS),
    )
)
def test_every_readable_check_can_be_judged(prepared, cells):
    try:
        claims = [claim(" | ".join(cells))]
    except BadCheck:
        return
    (one,) = judge(prepared, claims)
    assert one.judgement.why or one.judgement.numbers


def test_the_factor_covers_most_of_what_papers_print_twice():
    """Where two tables print the same ratio they agree within the factor in four of five pairs."""
    tables = {
        name: table(name)
        for name in ("linformer_table3", "nystromformer_table1", "flashattention_forward")
    }

    def cost(name, mechanism, metric, note=""):
        rows = tables[name]
        rows = rows[(rows["form"] == "eager") & (rows["metric"] == metric)]
        rows = rows[(rows["mechanism"] == mechanism) & rows["note"].str.startswith(note)]
        return rows.set_index("length")["value"]

    table3, table1, table18 = tables
    saved, faster = (cost(table3, "linformer", m, "rank=256") for m in ("memory_saving", "speedup"))
    slow = {name: cost(name, "transformer", "ms") for name in (table1, table18)}
    ratios = {name: slow[name] / cost(name, "linformer", "ms") for name in slow}
    longs = [slow[name] / cost(name, "longformer", "ms") for name in slow]
    size = cost(table1, "transformer", "MB") / cost(table1, "linformer", "MB")
    pairs = [(faster, ratios[table1]), (ratios[table1], ratios[table18])]
    pairs += [(faster, ratios[table18]), tuple(longs), (saved, size)]
    off = pd.concat([np.abs(np.log(a / b)).dropna() for a, b in pairs])
    assert len(off) == 25
    assert (off <= np.log(FACTOR)).mean() == pytest.approx(0.8, abs=0.05)
    assert (off <= np.log(1.5)).mean() < 0.6
