"""Every option of every verb, given what no one should give it."""

import resource
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnbench.version import __version__
from tests.inputs import driving, texts, values

VERBS = driving.verbs()

# how many inputs of each verb: in the ordinary suite, and twenty times as many at length
SHARES = {"sweep": 30, "check": 20, "models": 12}
USUAL, MORE = 8, 40
# what they accept takes them seconds, what they refuse does not
SLOW = ("report", "claims", "compare")

MEMORY = 4 << 30  # bytes that no input may make the process need


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Deep enough that a path which climbs stays in the folder of the tests."""
    top = tmp_path_factory.mktemp("inputs")
    place = top / "a" / "b" / "c"
    place.mkdir(parents=True)
    driving.furnish(place)
    return top, place


def obeys(folder, arguments):
    """Whatever the arguments, a verb ends in one of the documented ways."""
    top, place = folder
    before = driving.listing(top)
    most_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # other tests may have had more
    with driving.inside(place), driving.unmeasured():
        ended = driving.run(*arguments)
    assert ended.code in driving.CODES
    said = ended.out + ended.err
    assert not driving.COMMANDS.search(said)
    assert "Traceback" not in said
    assert "attnbench: unexpected " not in said
    if sys.platform == "linux":
        used_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert used_kib < max(most_kib + 1, MEMORY >> 10)
    if ended.code == 2:
        assert driving.listing(top) == before
        assert ended.out == ""
        refused(ended.err, arguments)


def refused(err, arguments):
    """One line, after what is being done and warnings, if there are any."""
    before = ("warning: ", f"attnbench {__version__}: ")
    lines = [line for line in err.splitlines() if line and not line.startswith(before)]
    assert len(lines) == 1
    assert lines[0].startswith("attnbench: ")
    assert len(lines[0]) <= driving.LONGEST
    assert lines[0].removeprefix("attnbench: ").strip()


def drive(verb, folder, count, accepted):
    """`accepted` is how many in a hundred inputs are right but for up to two values."""
    params, share = VERBS[verb], accepted // 4
    inputs = [values.words(params)] * share + [values.wrong(params)] * (25 - share)

    @settings(max_examples=count, suppress_health_check=list(HealthCheck), database=None)
    @given(st.one_of(inputs))
    def every(arguments):
        obeys(folder, [verb, *arguments])

    every()


def alone(verb, param, text):
    """The verb with one option and its value, and with what it cannot do without."""
    given = {each.name: texts.GOOD[each.name][0] for each in VERBS[verb] if each.required}
    given[param.name] = text
    words = [verb]
    for each in VERBS[verb]:
        if each.name in given:
            words += [] if values.is_argument(each) else [each.opts[0]]
            words += [] if values.is_flag(each) else [given[each.name]]
    return words


@pytest.mark.parametrize("verb", VERBS)
def test_no_input_breaks_a_verb(verb, folder):
    drive(verb, folder, SHARES.get(verb, USUAL), accepted=0 if verb in SLOW else 48)


@pytest.mark.faults
@pytest.mark.parametrize("verb", VERBS)
def test_no_input_of_very_many_breaks_a_verb(verb, folder):
    drive(verb, folder, MORE * SHARES.get(verb, USUAL), accepted=4 if verb in SLOW else 48)


@given(st.lists(values.anything(), min_size=1, max_size=3))
@settings(max_examples=20, suppress_health_check=list(HealthCheck), database=None)
def test_no_word_in_place_of_a_verb_breaks_anything(folder, words):
    obeys(folder, words)


@pytest.mark.parametrize("verb", VERBS)
def test_each_option_withstands_a_wrong_value(verb, folder):
    for number, param in enumerate(VERBS[verb]):
        if not values.is_flag(param):
            text = texts.RUBBISH[7 * number % len(texts.RUBBISH)]
            obeys(folder, alone(verb, param, text))


@pytest.mark.faults
@pytest.mark.parametrize("verb", VERBS)
def test_each_option_withstands_every_wrong_value(verb, folder):
    for param in VERBS[verb]:
        wrong = (*texts.NEAR.get(param.name, ()), *texts.RUBBISH)
        for text in wrong[:1] if values.is_flag(param) else wrong:
            obeys(folder, alone(verb, param, text))
