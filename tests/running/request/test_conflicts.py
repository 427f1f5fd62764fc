"""Options that do not go together."""

import pytest

from attnbench.errors import UsageError
from attnbench.running.request.conflicts import Conflict, refuse

RULES = (
    Conflict(given=("tokens", "case_timeout"), with_=("batch", "quick"), reason="{} has no effect"),
    Conflict(given=("json_",), with_=True, reason="{} prints nothing"),
    Conflict(given=("seed",), with_=False, reason="never"),
)


@pytest.mark.parametrize("given", [{"tokens"}, {"batch"}, {"seed", "batch"}, set()])
def test_options_that_go_together_are_no_conflict(given):
    refuse(RULES, given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch", "case_timeout"}, "--case-timeout has no effect"),
        ({"batch", "case_timeout", "tokens"}, "--tokens has no effect"),
        ({"json_"}, "--json prints nothing"),
    ],
)
def test_the_option_at_fault_is_named_as_it_is_written(given, said):
    with pytest.raises(UsageError, match=said):
        refuse(RULES, given)
