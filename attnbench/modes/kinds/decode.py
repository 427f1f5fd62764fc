"""`decode`: the output of token N, from the state that those before it left."""

from attnbench.modes.facts import ModeFacts

FACTS = ModeFacts(
    order=3,
    title="Decode",
    steps=True,
    only_level="attention",
    only_level_reason="a step is measured with its projections and without a classifier",
    time="Time per output token (TPOT), context of N tokens, ms",
    peak=", the prompt and its prefill, and the state",
)
