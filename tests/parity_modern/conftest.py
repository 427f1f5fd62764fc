"""Parity with transformers 5, which cannot be installed next to the release that older tests need:
`nox -s modern` runs these tests in an environment of their own."""

from importlib.metadata import PackageNotFoundError, version

import pytest


def pytest_pycollect_makemodule():
    """Skip the folder as a whole without that release."""
    try:
        found = version("transformers")
    except PackageNotFoundError:
        found = "none"
    if found.partition(".")[0] in ("none", "4"):
        reason = f"needs transformers 5, and {found} is installed; nox -s modern"
        pytest.skip(reason, allow_module_level=True)
