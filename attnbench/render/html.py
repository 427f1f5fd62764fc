"""Pages as self-contained HTML files: no external resources, light and dark, printable.

Templates, style and script are in `web/`. Jinja escapes all text; the security policy of a page
forbids everything but images within it and the style and scripts with these exact contents. The
charts are drawn by Vega-Lite, whose interpreter evaluates expressions without `eval`. Figures and
tables stay readable without scripts.
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

TYPES = MappingProxyType({"svg": "image/svg+xml", "png": "image/png"})

NO_CHARTS = "no interactive charts: this copy of attnbench was not installed, see pip install -e ."

# the bytes of a PNG or SVG, and its caption
Picture = tuple[bytes, str]


def page(
    name: str,
    tables: Sequence[Table],
    *,
    head: Sequence[str] = (),
    answer: Table | None = None,
    warnings: Sequence[str] = (),
    conditions: Sequence[str] = (),
    conditions_title: str = "Conditions",
    answers: Sequence[tuple[str, Sequence[str]]] = (),
    pictures: Mapping[str, Picture] = MappingProxyType({}),
    charts: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> bytes:
    """The whole document.

    `head` are lines below the name. `answers` are headings with sentences: those that begin as the
    first does stand above the table `answer`, the others below the charts. `pictures` are by the
    names of their files; `charts` is the data of `charts.charts`; `files` are the CSV files that
    the page offers, by their names, if there are others than those of its tables.
    """
    if charts is not None and not charts["quantities"]:
        charts = None  # nothing was measured or predicted
    drawn = charts is not None and VEGA.is_file()
    names = ("page.css", "page.js", *["charts.js"] * drawn)
    style, *scripts = (WEB.joinpath(file).read_text("utf-8") for file in names)
    allowed = [script.encode() for script in scripts]
    if files is None:
        files = {f"{table.name}.csv": delimited.table(table) for table in tables}
    packed = {"files": _packed({name: text.decode() for name, text in files.items()})}
    if drawn:
        vega = VEGA.read_bytes()
        packed |= {"data": _packed(charts), "vega": b64encode(vega).decode("ascii")}
        allowed.append(gzip.decompress(vega))
    subject = next((heading.partition(" ")[0] for heading, _ in answers), "")
    text = _template().render(
        name=name,
        head=" ".join(head),
        lead=sum(text.partition(" ")[0] == subject for text, _ in answers),
        answer=answer,
        tables=tables,
        warnings=[*warnings, *[NO_CHARTS] * (charts is not None and not drawn)],
        conditions=conditions,
        conditions_title=conditions_title,
        answers=answers,
        figures=_figures(pictures, answers),
        data=drawn,
        every_case="cases.csv" in files,
        packed=packed,
        policy=policy(style.encode(), allowed),
        style=style,
        scripts=scripts,
    )
    return text.encode("utf-8", "replace")


def fragment(
    title: str,
    tables: Sequence[Table],
    *,
    answers: Sequence[tuple[str, Sequence[str]]],
    warnings: Sequence[str],
    pictures: Mapping[str, Picture],
) -> str:
    """The body of a page without its style, to stand within another page."""
    return _template("fragment.html").render(
        title=title,
        tables=tables,
        answers=answers,
        warnings=warnings,
        figures=_figures(pictures),
    )


def policy(style: bytes, scripts: Sequence[bytes]) -> str:
    """The content security policy that allows this style and these scripts, and data: images."""
    allowed = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


@cache
def _template(name: str = "base.html") -> Template:
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
    environment.filters |= {"breakable": breakable, "shown": _shown, "value": _value}
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


def _value(cell: Cell) -> Markup:
    """The attribute by which the rows of a table are sorted, for a number."""
    if not isinstance(cell.value, int | float) or not cell.is_number:
        return Markup()
    return Markup(' data-value="{}"').format(repr(float(cell.value)))


def _packed(data: object) -> str:
    """JSON, compressed, in base64; the same bytes for the same data."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    content = gzip.compress(text.encode("utf-8", "replace"), mtime=0)
    return b64encode(content).decode("ascii")


def _hash(content: bytes) -> str:
    return f"'sha256-{b64encode(sha256(content).digest()).decode('ascii')}'"


def _figures(
    pictures: Mapping[str, Picture], answers: Sequence[tuple[str, Sequence[str]]] = ()
) -> Iterator[dict[str, str]]:
    """Figures with their captions; the first one is described by the first answer too."""
    first = [f"{heading}: {' '.join(sentences)}" for heading, sentences in answers[:1]]
    for file, (content, caption) in pictures.items():
        kind = TYPES[file.rpartition(".")[2]]
        source = f"data:{kind};base64,{b64encode(content).decode('ascii')}"
        described = " ".join([caption, *first])
        yield {"source": source, "caption": caption, "described": described}
        first = []
