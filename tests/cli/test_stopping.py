"""Signals unwind a block, are told once, and are left as they were found."""

import os
import signal

import pytest

from attnbench.cli.stopping import SIGNALS, stoppable
from attnbench.errors import Interrupted


@pytest.fixture(params=SIGNALS)
def number(request):
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_unwinds_the_block_and_is_told(number):
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match="interrupted; all is well"), stoppable("all is well"):
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_signal_that_is_ignored_stays_so(number):
    signal.signal(number, signal.SIG_IGN)
    with stoppable("all is well"):
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is signal.SIG_IGN
