"""Makes vega.js.gz while the package is built: the charting library of pages, compressed.

The scripts are those of vl-convert-python: Vega-Embed with Vega-Lite, Vega and its interpreter of
expressions. Only the build needs that package, which is large and slow to start.
"""

import gzip
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "vl-convert-python==1.9.0.post1"
NOTICE = (
    f"/*! Made by {SOURCE}: Vega, Vega-Lite, Vega-Embed, Vega-Interpreter, Vega-Tooltip;"
    " (c) University of Washington Interactive Data Lab, and D3; (c) Mike Bostock;"
    " BSD-3-Clause and ISC licenses, https://github.com/vega and https://github.com/d3 */\n"
)
BUNDLE = Path(__file__).with_name("vega.js.gz")


class Bundle(BuildHookInterface):
    """The hook that hatchling calls before it collects files."""

    def dependencies(self) -> list[str]:
        """What the build needs besides; nothing if the bundle is there, as in an sdist."""
        return [] if _is_current() else [SOURCE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Writes the bundle, unless it is there."""
        if _is_current():
            return
        import vl_convert

        code = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
        BUNDLE.write_bytes(gzip.compress((NOTICE + code).encode(), mtime=0))


def _is_current() -> bool:
    return BUNDLE.exists() and gzip.decompress(BUNDLE.read_bytes()).startswith(NOTICE.encode())
