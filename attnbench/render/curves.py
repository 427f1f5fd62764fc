"""The points of a cost against length, which figures and charts draw."""

import pandas as pd

from attnbench.analysis.summary import Frame
from attnbench.metrics import Metric
from attnbench.render.cases import outcome_phrase


def points(cases: Frame, metric: Metric, scale: pd.Series | float = 1.0) -> Frame:
    """A metric of each case, times `scale`, from short to long.

    Columns: series, mode, seq_len; `value`, NaN where nothing was measured, for this `reason`;
    `guess`, a prediction there, if any; `height`, what is drawn of the two; `low` and `high`, the
    ends of its interval or of the band of the guess.
    """
    found = cases.reindex(columns=[*metric.estimate[:3], *metric.prediction]).astype(float)
    found = found.mul(scale, axis=0).set_axis(["value", "low", "high", "guess", "l", "h"], axis=1)
    known = found["value"].notna() | (not metric.predicted)
    guess = found["guess"].mask(known)
    made = cases[["series", "mode", "seq_len"]].assign(
        value=found["value"],
        guess=guess,
        height=found["value"].fillna(guess),
        low=found["low"].where(known, found["l"]),
        high=found["high"].where(known, found["h"]),
        reason=[*map(outcome_phrase, cases["outcome"], cases["cause"])],
    )
    return made.sort_values("seq_len", kind="stable")
