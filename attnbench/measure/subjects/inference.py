"""`inference`: an iteration is a forward pass without gradients."""

from attnbench.measure.subject import Subject


class Inference(Subject):
    """A forward pass, as every subject has it."""
