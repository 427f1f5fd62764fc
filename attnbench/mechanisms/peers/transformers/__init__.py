"""transformers: the layers of its models, without the residuals and norms around them."""

from types import MappingProxyType

from attnbench.mechanisms.peers.transformers import current, earlier

FORMS = MappingProxyType({**earlier.FORMS, **current.FORMS})
