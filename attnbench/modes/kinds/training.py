"""`training`: forward, loss, backward and a step of Adam."""

from attnbench.modes.facts import ModeFacts

FACTS = ModeFacts(
    order=1,
    title="Training",
    both=True,
    trains=True,
    forward_passes=3.0,  # each product has two in the backward pass
    work="Training counts three times the FLOPs of the forward pass.",
    copies=4,  # parameters, gradients and Adam's two moments
    parameter_moves=6,  # parameters and both moments, each read and written
    peak=", inputs, gradients and optimiser state",
)
