"""What is tried of a kernel: sizes, modes and inputs."""

from dataclasses import replace

from attnbench.attention.checks.panel import row
from attnbench.attention.checks.plan import of_form
from attnbench.attention.checks.trial import Trial
from attnbench.mechanisms.catalogue import registry
from tests.attention.checks.judged import fit


def test_every_mode_that_a_function_takes_is_tried_unless_one_is_chosen():
    kernel = fit("transformer", "planted.py", "sdpa")
    assert kernel.modes == (False, True)
    assert {(a.causal, a.masked) for a in kernel.attempts if a.tokens == 100} == {
        *((causal, masked) for causal in (False, True) for masked in (False, True))
    }
    assert fit("transformer", "planted.py", "sdpa", causal=True).modes == (True,)


def test_attempts_contain_every_size_of_the_race():
    kernel = fit("transformer", "planted.py", "sdpa", lengths=((512, 16), (2048, 4)))
    raced = {(a.tokens, a.batch, a.width, a.heads) for a in kernel.attempts if a.raced}
    assert raced == {(512, 16, 256, 16), (2048, 4, 256, 16)}
    assert {1, 17, 100, 321} <= {a.tokens for a in kernel.attempts}


def test_a_padded_race_is_compared_with_masks_at_its_lengths():
    kernel = fit("transformer", "planted.py", "sdpa", lengths=((512, 16), (2048, 4)), padded=True)
    raced = [(a.tokens, a.masked) for a in kernel.attempts if a.raced and not a.causal]
    assert raced == [(512, False), (512, True), (2048, False), (2048, True)]
    plain = fit("transformer", "planted.py", "sdpa", lengths=((512, 16), (2048, 4)))
    assert not any(a.masked for a in plain.attempts if a.raced)


def test_an_attempt_of_other_sizes_is_made_at_them():
    card = registry.card("transformer")
    trial = Trial(card, card.config(), "eager", False)
    first = next(of_form(trial))
    shown = row(trial, replace(first, width=96, heads=3))
    assert shown.head_width == 32
