"""The page of a report as one HTML file: no external resources, light and dark, printable.

Template, style and script are in `web/`. Jinja escapes all text; the security policy of a page
forbids everything but images within it and the style and scripts with these exact contents. The
charts are drawn by Vega-Lite, whose interpreter evaluates expressions without `eval`. Figures and
tables stay within reach without scripts.
"""

import gzip
import json
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from attnbench.errors import clean
from attnbench.report.grid import Report

WEB = Path(__file__).with_name("web")
# the charting library, compressed; made when the package is built
VEGA = WEB / "vega.js.gz"

NO_CHARTS = "no interactive charts: this copy of attnbench was not installed, see pip install -e ."


def page(
    report: Report,
    pictures: Mapping[str, bytes] = MappingProxyType({}),
    charts: Mapping[str, Any] | None = None,
    maps: Mapping[str, bytes] = MappingProxyType({}),
) -> bytes:
    """The whole document.

    report: its sentences and tables.
    pictures: PNG files by their captions, in whose place the chart stands where scripts run.
    charts: the data of `charts.charts`.
    maps: further PNG files by their captions, which the chart does not replace.
    """
    if charts is not None and not VEGA.is_file():
        charts = None
        report = report._replace(warnings=[*report.warnings, NO_CHARTS])
    style, script = (WEB.joinpath(file).read_text("utf-8") for file in ("page.css", "page.js"))
    vega = gzip.decompress(VEGA.read_bytes()).decode() if charts is not None else ""
    data = json.dumps(charts, ensure_ascii=False, allow_nan=False).replace("<", r"\u003c")
    text = _template().render(
        **report._asdict(),
        places={table.name for table in (*report.leading, *report.tables)},
        pictures=pictures,
        maps=maps,
        charts=charts,
        data=data,
        vega=vega,
        policy=policy(style, vega, script),
        style=style,
        script=script,
    )
    return text.encode("utf-8", "replace")


def policy(style: str, *scripts: str) -> str:
    """The content security policy that allows this style and these scripts, and data: images."""
    styled, *run = (
        f"'sha256-{_base64(sha256(text.encode()).digest())}'" for text in (style, *scripts)
    )
    return (
        f"default-src 'none'; script-src {' '.join(run)}; style-src {styled}; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _template() -> Template:
    """The template of pages; text in it is cleaned of control characters and escaped."""
    environment = Environment(
        loader=PackageLoader("attnbench.report", "web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    environment.filters |= {"clean": clean, "base64": _base64}
    return environment.get_template("page.html")


def _base64(content: bytes) -> str:
    return b64encode(content).decode("ascii")
