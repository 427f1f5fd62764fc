"""What texts of the command line stand for, and what is said of those that stand for nothing.

Properties of all texts are in `tests/inputs/test_parsers.py`.
"""

import pytest

from attnbench.errors import UsageError
from attnbench.records.selection import Selection
from attnbench.running.request import axes


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (axes.lengths, "128..65536:x2", tuple(2**k for k in range(7, 17))),
        (axes.lengths, "65535,128,128", (128, 65535)),
        (axes.lengths, "1k..4k", (1024, 2048, 4096)),
        (axes.lengths, "100..300:+100", (100, 200, 300)),
        (axes.lengths, "3..100:x3, 7", (3, 7, 9, 27, 81)),
        (axes.lengths, "1..1", (1,)),
        (axes.size, "64k", 65536),
        (axes.size, "2M", 2**21),
        (axes.seconds, "90s", 90),
        (axes.seconds, "10m", 600),
        (axes.seconds, "1.5h", 5400),
        (axes.seconds, "45", 45),
        (axes.seconds, "none", None),
        (axes.memory, "8GiB", 8 << 30),
        (axes.memory, "512MiB", 512 << 20),
        (axes.memory, "1.5g", 3 << 29),
        (axes.memory, "2tb", 2 << 40),
    ],
)
def test_a_text_has_its_value(parse, text, expected):
    assert parse(text) == expected


BAD = {
    axes.lengths: (
        "--lengths",
        ("", "0", "-1", "a", "8..4", "1..8:x1", "1..8:+0", "1..", "1,,2", "99999999", "1..9:y2"),
    ),
    axes.seconds: ("90s", ("0s", "-1s", "5x", "", "1e3s", "inf", "nan")),
    axes.memory: (
        "write 8GiB or 512MiB",
        ("", "8", "0GiB", "-1g", "1e3m", "8 potatoes", "inf", "nan"),
    ),
    Selection.read: (
        "--models",
        ("a[b]", "a[b=]", "a[", "[x=1]", ":eager", "a:b:c", "a[x=inf]", "a[x=nan]"),
    ),
}


@pytest.mark.parametrize(
    ("parse", "words", "text"),
    [(parse, words, text) for parse, (words, texts) in BAD.items() for text in texts],
)
def test_what_stands_for_nothing_says_so(parse, words, text):
    with pytest.raises(UsageError, match=words):
        parse(text)


@pytest.mark.parametrize("text", ["0", "0k", "8388609g"])
def test_a_size_that_no_number_of_tokens_has_is_refused(text):
    assert axes.size("8388608g") == 1 << 53
    with pytest.raises(UsageError, match=f"--tokens '{text}' is not between 1 and 9,007,199"):
        axes.size(text, "--tokens")


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
            ("m", "f", (("rank", 64), ("share", True), ("kind", "mean"), ("t", 0.5), ("n", None))),
        ),
    ],
)
def test_selection(text, expected):
    found = Selection.read(text)
    assert (found.name, found.form, found.options) == expected
