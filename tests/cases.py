"""Cases as hypothesis draws them: every size, every option of the shell, any file's path."""

from hypothesis import strategies as st

from attnbench.records import COUNTABLE, Case, Level, Mode, Shell, Workload
from attnbench.records.selection import option_value

SIZES = st.integers(1, 1 << 40)
SHARES = st.floats(0, 1)
SHELLS = st.builds(
    Shell,
    layers=SIZES,
    vocabulary=SIZES,
    classes=SIZES,
    dropout=SHARES,
)
NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
FILES = st.text(min_size=1).map(lambda path: f"{path}.py:CARD")
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.from_regex(r"[A-Za-z_./-]{1,12}", fullmatch=True).filter(lambda t: option_value(t) is t)
OPTIONS = st.booleans() | st.none() | NUMBERS | WORDS


@st.composite
def workloads(draw):
    level = draw(st.sampled_from(Level))
    return Workload(
        batch=draw(st.integers(1, COUNTABLE)),
        seq_len=draw(SIZES),
        width=draw(SIZES),
        heads=draw(SIZES),
        level=level,
        mode=draw(st.sampled_from(Mode)),
        dtype=draw(st.sampled_from(("float32", "bfloat16"))),
        device=draw(st.sampled_from(("cpu", "cuda", "cuda:1"))),
        causal=draw(st.booleans()),
        padding=draw(SHARES),
        shell=draw(SHELLS) if level is Level.MODEL else None,
    )


CASES = st.builds(
    Case,
    mechanism=NAMES | FILES,
    form=NAMES,
    options=st.dictionaries(NAMES, OPTIONS, max_size=3).map(lambda found: tuple(found.items())),
    workload=workloads(),
)
