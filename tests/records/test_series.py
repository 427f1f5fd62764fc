"""Series as values, and their names as they are written and read."""

from hypothesis import given
from hypothesis import strategies as st

from attnbench.records import SIZES, Name, Series, size_text

NAMES = st.one_of(
    st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True),
    st.sampled_from(["stack(3*local:eager+transformer[kv_heads=2])", "my files/x:y.py:Mean"]),
)
OPTIONS = st.lists(
    st.tuples(
        st.from_regex(r"[a-z_]{1,6}", fullmatch=True),
        st.one_of(st.integers(0, 999), st.booleans(), st.sampled_from(["relu", "elu"])),
    ),
    max_size=3,
    unique_by=lambda option: option[0],
)
VALUES = {
    "width": st.integers(1, 9999),
    "heads": st.integers(1, 99),
    "dtype": st.sampled_from(["float32", "bfloat16"]),
    "batch": st.integers(1, 9999),
    "step": st.integers(1, 99),
}


@st.composite
def drawn(draw):
    crossed = [size for size in SIZES if draw(st.booleans())]
    return Series(
        mechanism=draw(NAMES),
        form=draw(st.one_of(st.none(), st.sampled_from(["eager", "sdpa", "folded"]))),
        options=tuple(draw(OPTIONS)),
        sizes=" ".join(size_text(size, draw(VALUES[size])) for size in crossed),
    )


@given(drawn())
def test_the_parts_of_a_name_are_those_of_its_series(series):
    name = Name.read(str(series))
    assert (name.plain, name.sizes) == (series.plain, series.sizes)
    assert name.mechanism == series.mechanism
    assert name.form == (series.form or "")
    assert name.options == ",".join(f"{option}={value}" for option, value in series.options)


@given(st.text())
def test_any_text_is_read(text):
    name = Name.read(text)
    assert text.startswith(name.plain)
    assert name.plain.startswith(name.mechanism)


@given(drawn(), drawn())
def test_other_series_have_other_names(one, other):
    assert (one == other) == (str(one) == str(other))
