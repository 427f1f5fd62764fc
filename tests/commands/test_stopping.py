"""Signals unwind a block, are reported once, and leave the handlers as they were."""

import os
import signal

import pytest

from attnbench.commands.stopping import SIGNALS, stoppable
from attnbench.errors import Interrupted
from tests.commands.commands import python

BLOCK = """
import os, signal
from attnbench.commands.stopping import leave_on_signal, stoppable
from attnbench.errors import Interrupted
"""

# Ctrl-C, the end of a job, and of a terminal
ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(params=SIGNALS)
def number(request):
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def well():
    return "all is well"


def test_a_signal_unwinds_the_block_and_is_reported(number):
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match="interrupted; all is well") as raised, stoppable(well):
        os.kill(os.getpid(), number)
    assert raised.value.exit_code == 128 + number
    assert signal.getsignal(number) is before


def test_a_signal_that_is_ignored_stays_so(number):
    signal.signal(number, signal.SIG_IGN)
    with stoppable(well):
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is signal.SIG_IGN


def test_a_second_signal_does_not_disturb_what_the_first_began(number):
    cleaned = []

    def work():
        try:
            os.kill(os.getpid(), number)
        finally:
            for each in SIGNALS:
                os.kill(os.getpid(), each)
            cleaned.append(True)

    with pytest.raises(Interrupted), stoppable(well):
        work()
    assert cleaned == [True]


OUTSIDE = """
leave_on_signal('nothing was measured')
os.kill(os.getpid(), {0})
while True: pass
"""
IN_DESTRUCTOR = """
class Late:
    def __del__(self):
        os.kill(os.getpid(), {0})
        for _ in range(1000): pass
with stoppable(lambda: 'all is well'):
    late = Late()
    del late
    while True: pass
"""


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize(
    ("code", "said"),
    [(OUTSIDE, "nothing was measured"), (IN_DESTRUCTOR, "interrupted; all is well")],
)
def test_a_process_leaves_at_once_outside_of_a_block_and_after_a_destructor(code, said, number):
    """Python would print what is raised in a destructor, and go on."""
    usual = f"signal.signal({int(number)}, signal.SIG_DFL)"
    done = python("-c", BLOCK + usual + code.format(int(number)), code=128 + number, timeout=300)
    assert done.stderr == f"attnbench: {said}\n"
