import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.report import analyse
from attnbench.render import html, page
from attnbench.render.grid import Cell, Table, clean, words
from tests.render.test_writers import HOSTILE
from tests.sweeps import sweep

VOID = {"meta", "img", "wbr"}
KNOWN = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "ul", "li", "nav", "a"),
    *(
        "wbr",
        "figure",
        "img",
        "figcaption",
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "p",
    ),
}
NASTY = (
    *HOSTILE,
    "</title><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '" onload="alert(1)',
    "' style='x",
    "javascript:alert(1)",
    "&lt;b&gt; &amp;",
)


class Seen(HTMLParser):
    """What a browser reads: elements, their attributes and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.broken = False  # a line may break before what comes
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.broken = tag == "wbr"
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.broken:
            data = self.text.pop() + data
        self.text.append(data)
        self.broken = False


def one(name: str) -> Table:
    rows = ((words(name), Cell(name, 1.0), Cell("–")),)
    return Table(name="t", title=name, columns=("Name", name, "128"), rows=rows, note=name)


@pytest.mark.parametrize("name", NASTY)
def test_a_name_is_shown_literally(name: str):
    seen = Seen(html.page(name, [name], [name], {"fig2.png": b"x"}, [one(name)]).decode())
    assert seen.open == []
    assert set(seen.tags) <= KNOWN
    assert not [key for key, _ in seen.attributes if key.startswith("on") or key == "style"]
    links = [value for key, value in seen.attributes if key in ("href", "src")]
    assert all(link.startswith(("#t", "data:image/png;base64,")) for link in links)
    # title, heading, warning, condition, contents, table's title, column, two cells, note
    assert sum(text == clean(name) for text in seen.text) == 10


@given(st.text(max_size=60))
def test_any_text_comes_back_as_it_was(text: str):
    assert Seen(f"<p>{html.text(text)}</p>").open == []
    assert "".join(Seen(f"<p>{html.text(text)}</p>").text) == clean(text)
    assert Seen(f'<p title="{html.text(text)}"></p>').attributes == [("title", clean(text))]


def test_a_report_is_one_page_with_everything_in_it():
    whole = sweep(("fastformer", "transformer"), lengths=(128, 512, 2048, 65_536))
    made = page.report_files(analyse(whole))
    text = made["report.html"].decode()
    seen = Seen(text)
    assert seen.tags.count("img") == 3
    markdown = made["tables.md"].decode()
    assert seen.tags.count("table") == len(re.findall(r"^\| ---", markdown, re.MULTILINE))
    assert "http" not in re.sub(r"base64,[^\"]*|http-equiv", "", text)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    ids = [value for key, value in seen.attributes if key == "id"]
    links = [value for key, value in seen.attributes if key == "href"]
    assert sorted(f"#{name}" for name in ids) == sorted(links)
    assert len(set(ids)) == len(ids)


def test_warnings_are_separate_at_the_top():
    text = html.page("s", ["it was busy"], ["Asked: all"], {}, []).decode()
    assert '<ul class="warnings"><li>it was busy</li></ul>' in text
    assert "<ul><li>Asked: all</li></ul>" in text
    assert "warnings" not in html.page("s", [], ["Asked"], {}, []).decode().split("</style>")[1]


@pytest.mark.parametrize(
    ("formats", "kind"), [(("png",), "png"), (("png", "svg"), "svg+xml"), (("pdf",), "png")]
)
def test_figures_are_embedded_for_any_requested_formats(formats: tuple[str, ...], kind: str):
    made = page.report_files(analyse(sweep(("transformer",), lengths=(128, 512))), formats)
    assert made["report.html"].decode().count(f"data:image/{kind};base64,") == 3
    assert not [name for name in made if name.endswith(".png") and "png" not in formats]
