"""Every option of every verb, given what no one should give it."""

import resource

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnbench.version import __version__
from tests.doubles import command_line
from tests.inputs import values

VERBS = command_line.verbs()

SHARES = {"sweep": 30, "check": 20, "models": 12}  # inputs of a verb
USUAL = 8
# what they accept takes them seconds, what they refuse does not
SLOW = ("report", "claims", "compare")

MEMORY = 4 << 30  # bytes that no input may make the process need


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Deep enough that a path which climbs stays in the folder of the tests."""
    top = tmp_path_factory.mktemp("inputs")
    place = top / "a" / "b" / "c"
    place.mkdir(parents=True)
    command_line.furnish(place)
    return top, place


def obeys(folder, arguments):
    """Whatever the arguments, a verb ends in one of the documented ways."""
    top, place = folder
    before = command_line.listing(top)
    most_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # other tests may have had more
    ended = command_line.run(place, *arguments)
    assert ended.returncode in command_line.CODES
    said = ended.stdout + ended.stderr
    assert not command_line.COMMANDS.search(said)
    assert "Traceback" not in said
    used_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert used_kib < max(most_kib + 1, MEMORY >> 10)
    if ended.returncode == 2:
        assert command_line.listing(top) == before
        assert ended.stdout == ""
        # one line, after what is being done and warnings, if there are any
        first = ("warning: ", f"attnbench {__version__}: ")
        (line,) = [s for s in ended.stderr.splitlines() if s and not s.startswith(first)]
        assert line.removeprefix("attnbench: ").strip() != line.strip()
        assert len(line) <= command_line.LONGEST


@pytest.mark.parametrize("verb", VERBS)
def test_no_input_breaks_a_verb(verb, folder):
    """Half of the inputs are right but for up to two values, where that takes no seconds."""
    params, share = VERBS[verb], 0 if verb in SLOW else 12
    inputs = [values.words(params)] * share + [values.wrong(params)] * (25 - share)
    count = SHARES.get(verb, USUAL)

    @settings(max_examples=count, suppress_health_check=list(HealthCheck), database=None)
    @given(st.one_of(inputs))
    def every(arguments):
        obeys(folder, [verb, *arguments])

    every()


@given(st.lists(values.anything(), min_size=1, max_size=3))
@settings(max_examples=20, suppress_health_check=list(HealthCheck), database=None)
def test_no_word_in_place_of_a_verb_breaks_anything(folder, words):
    obeys(folder, words)
