"""The version of attnbench, alone, so that everything may import it."""

__version__ = "0.2.0"
