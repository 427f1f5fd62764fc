"""What all layers of transformers share."""

from attnbench.peers import Shared


class Sublayer(Shared):
    package = "transformers"
    release = "5"
