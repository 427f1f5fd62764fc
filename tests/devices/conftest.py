"""The allocator and the emulated GPU of the tests of measuring processes."""

from tests.measuring.conftest import emulated_gpu, usual_allocator

__all__ = ("emulated_gpu", "usual_allocator")
