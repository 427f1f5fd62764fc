"""Pages as self-contained HTML files: no external resources, light and dark, printable.

Templates, style and script are in `web/`. Jinja escapes all text; the security policy of a page
forbids everything but images within it and the style and scripts with these exact contents. The
charts are drawn by Vega-Lite, whose interpreter evaluates expressions without `eval`. Figures,
tables and files stay within reach without scripts.
"""

import gzip
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from attnbench.render import delimited
from attnbench.render.grid import Cell, Table, clean, pieces

WEB = Path(__file__).with_name("web")
# the charting library, compressed; made when the package is built
VEGA = WEB / "vega.js.gz"

NO_CHARTS = "no interactive charts: this copy of attnbench was not installed, see pip install -e ."

Answers = Sequence[tuple[str, Sequence[str]]]  # headings with sentences
Pictures = Mapping[str, tuple[bytes, str]]  # PNG files and their captions


def page(
    name: str,
    tables: Sequence[Table],
    *,
    head: Sequence[str] = (),
    answer: Table | None = None,
    warnings: Sequence[str] = (),
    conditions: Sequence[str] = (),
    conditions_title: str = "Conditions",
    answers: Answers = (),
    pictures: Pictures = MappingProxyType({}),
    charts: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> bytes:
    """The whole document.

    `head` are lines below the name, followed by what was found: `answers` and the table `answer`.
    `charts` is the data of `charts.charts`. `files` are the CSV files that the page offers besides
    those of its tables, by their names.
    """
    if charts is not None and not charts["quantities"]:
        charts = None  # nothing was measured or predicted
    if charts is not None and not VEGA.is_file():
        charts, warnings = None, [*warnings, NO_CHARTS]
    style, script = (WEB.joinpath(file).read_text("utf-8") for file in ("page.css", "page.js"))
    allowed, packed = [script.encode()], {}
    if charts is not None:
        vega = VEGA.read_bytes()
        packed = {"data": _packed(charts), "vega": _base64(vega)}
        allowed.append(gzip.decompress(vega))
    own = [*tables, *filter(None, [answer])]
    offered = {f"{table.name}.csv": delimited.table(table) for table in own} | {**files}
    text = _template("base.html").render(
        name=name,
        head=" ".join(head),
        answer=answer,
        tables=tables,
        warnings=warnings,
        conditions=conditions,
        conditions_title=conditions_title,
        answers=answers,
        figures=_figures(pictures),
        charts=charts,
        files={file: f"data:text/csv;base64,{_base64(csv)}" for file, csv in offered.items()},
        packed=packed,
        policy=policy(style.encode(), allowed),
        style=style,
        script=script,
    )
    return text.encode("utf-8", "replace")


def policy(style: bytes, scripts: Sequence[bytes]) -> str:
    """The content security policy that allows this style and these scripts, and data: images."""
    allowed = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


@cache
def _template(name: str) -> Template:
    """A template; text in it is cleaned of control characters and escaped."""
    environment = Environment(
        loader=PackageLoader("attnbench.render", "web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_plain,
    )
    environment.filters |= {"breakable": breakable, "shown": _shown}
    return environment.get_template(name)


def breakable(plain: str) -> Markup:
    """The text, with positions at which a long name may be broken."""
    return Markup("<wbr>").join(pieces(plain))


def _plain(value: object) -> object:
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _shown(cell: Cell) -> Markup:
    """The text of a cell; a number is broken only before its interval."""
    if not cell.is_number:
        return breakable(cell.text)
    return Markup(" <wbr>[").join(clean(cell.text).split(" ["))


def _packed(data: object) -> str:
    """JSON, compressed, in base64; the same bytes for the same data."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _base64(gzip.compress(text.encode("utf-8", "replace"), mtime=0))


def _base64(content: bytes) -> str:
    return b64encode(content).decode("ascii")


def _hash(content: bytes) -> str:
    return f"'sha256-{_base64(sha256(content).digest())}'"


def _figures(pictures: Pictures) -> Iterator[dict[str, str]]:
    for content, caption in pictures.values():
        yield {"source": f"data:image/png;base64,{_base64(content)}", "caption": caption}
