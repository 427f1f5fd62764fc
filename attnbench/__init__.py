"""attnbench: what does each attention mechanism cost, on this machine, at this length?"""

# typing has it too, but importing that doubles the time until signals are handled
TYPE_CHECKING = False

if TYPE_CHECKING:
    from os import PathLike

    from pandas import DataFrame

__version__ = "0.1.0"


def load(sweep: "str | PathLike[str]") -> "DataFrame":
    """One row per case of a stored sweep, with estimates, counts and outcome; for notebooks.

    Raises `StoreError` if the folder holds no readable sweep, or one without cases.
    """
    from attnbench.analysis.summary import summary
    from attnbench.store.journal import load_results

    return summary(load_results(sweep))
