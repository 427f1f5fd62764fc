"""Parity with transformers 5, which cannot be installed next to the release that older tests need:
`nox -s modern` runs these tests in an environment of their own."""

from importlib.metadata import PackageNotFoundError, version

import pytest


def pytest_collection_modifyitems(items):
    try:
        found = version("transformers")
    except PackageNotFoundError:
        found = "none"
    if found.partition(".")[0] not in ("none", "4"):
        return
    reason = f"needs transformers 5, and {found} is installed; nox -s modern"
    for item in items:
        if "parity_modern" in item.nodeid:
            item.add_marker(pytest.mark.skip(reason=reason))
