from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.errors import BadAxis, UsageError
from attnbench.workloads import axes


def test_lengths_of_the_paper():
    assert axes.lengths("128..65536:x2") == tuple(2**k for k in range(7, 17))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512", (512,)),
        ("65535,128,128", (128, 65535)),
        ("1k..4k", (1024, 2048, 4096)),
        ("100..350:+100", (100, 200, 300)),
        ("100..300:+100", (100, 200, 300)),
        ("3..100:x3, 7", (3, 7, 9, 27, 81)),
        ("1..1", (1,)),
    ],
)
def test_lengths(text, expected):
    assert axes.lengths(text) == expected


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "a", "8..4", "1..8:x1", "1..8:+0", "1..", "1,,2", "99999999", "1..9:y2"]
)
def test_bad_lengths_say_so(text):
    with pytest.raises(BadAxis, match="--lengths"):
        axes.lengths(text)


@pytest.mark.parametrize(("text", "expected"), [("64k", 65536), ("2M", 2**21), ("7", 7)])
def test_size(text, expected):
    assert axes.size(text) == expected


def test_a_size_that_no_number_of_tokens_has_is_refused():
    assert axes.size("8388608g") == 1 << 53
    with pytest.raises(BadAxis, match=r"--tokens '8388609g' is more than 2\^53"):
        axes.size("8388609g", "--tokens")


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e999"])
def test_options_are_finite(value):
    with pytest.raises(UsageError, match="share must be finite"):
        axes.selection(f"mine.py:A[share={value}]")


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("45", 45), ("none", None)]
)
def test_seconds(text, expected):
    assert axes.seconds(text) == expected


@pytest.mark.parametrize("text", ["0s", "-1s", "5x", "", "1e3s", "inf", "nan"])
def test_bad_times(text):
    with pytest.raises(BadAxis, match="90s"):
        axes.seconds(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8GiB", 8 << 30), ("512MiB", 512 << 20), ("1.5g", 3 << 29), ("2tb", 2 << 40)],
)
def test_memory(text, expected):
    assert axes.memory(text) == expected


@pytest.mark.parametrize("text", ["", "8", "0GiB", "-1g", "1e3m", "8 potatoes", "inf", "nan"])
def test_bad_sizes_of_memory(text):
    with pytest.raises(BadAxis, match="write 8GiB or 512MiB"):
        axes.memory(text)


def test_parts_leave_brackets_whole():
    assert axes.parts("a,b[x=1,y=2], c", "--models") == ["a", "b[x=1,y=2]", "c"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linformer", ("linformer", None, ())),
        ("transformer:eager", ("transformer", "eager", ())),
        ("synth*", ("synth*", None, ())),
        ("@fig2", ("@fig2", None, ())),
        ("my dir/a.py:Mine", ("my dir/a.py:Mine", None, ())),
        ("a.py:Mine:fast[x=1]", ("a.py:Mine", "fast", (("x", 1),))),
        (
            "m:f[rank=64,share=true,kind=mean,t=0.5,n=none]",
            (
                "m",
                "f",
                (("rank", 64), ("share", True), ("kind", "mean"), ("t", 0.5), ("n", None)),
            ),
        ),
    ],
)
def test_selection(text, expected):
    found = axes.selection(text)
    assert (found.name, found.form, found.options) == expected


@pytest.mark.parametrize("text", ["a[b]", "a[b=]", "a[", "[x=1]", ":eager", "a:b:c"])
def test_bad_selection(text):
    with pytest.raises(UsageError, match="--models"):
        axes.selection(text)


@given(st.text(max_size=40))
def test_no_text_raises_anything_but_a_usage_error(text):
    for parse in (axes.lengths, axes.size, axes.seconds, axes.selection):
        with suppress(UsageError):
            parse(text)
    with suppress(UsageError):
        axes.parts(text, "--models")


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(2, 9))
def test_a_range_starts_at_its_first_and_grows_by_its_factor(first, span, factor):
    found = axes.lengths(f"{first}..{first + span}:x{factor}")
    assert found[0] == first
    assert found[-1] <= first + span < found[-1] * factor
    assert all(b == a * factor for a, b in pairwise(found))
