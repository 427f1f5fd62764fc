"""`inference`: a forward pass without gradients."""

from attnbench.modes.facts import ModeFacts

FACTS = ModeFacts(order=2, title="Inference", both=True)
