"""`inference`: a forward pass without gradients."""

from attnbench.modes.facts import ModeFacts

FACTS = ModeFacts(place=2, title="Inference", both=True)
