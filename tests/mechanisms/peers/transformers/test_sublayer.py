"""Functions of a package as it has them, without what wraps them."""

from functools import wraps
from types import SimpleNamespace

from attnbench.mechanisms.peers.transformers.sublayer import own


def test_what_a_form_measures_does_not_depend_on_kernels_that_happen_to_be_installed():
    """A wrapper of transformers' own function, as transformers puts around it, is taken away."""

    def plain():
        return "plain"

    @wraps(plain)
    def preferring():
        return "kernel"

    module = SimpleNamespace(rule=preferring, other=3)
    assert own(module).rule() == "plain"
    assert module.other == 3
