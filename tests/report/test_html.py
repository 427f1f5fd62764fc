import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.analysis.report import analyse
from attnbench.errors import clean
from attnbench.report import html, page
from attnbench.report.grid import Cell, Report, Table, words
from tests.report.hostile import HOSTILE
from tests.sweeps import sweep

VOID = {"meta", "img", "wbr", "link", "input"}
KNOWN = {"html", *re.findall(r"<(\w+)", html.WEB.joinpath("page.html").read_text())}
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
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def one(name: str) -> Table:
    rows = ((words(name), Cell(name, 1.0), Cell("–")),)
    return Table(name="t", title=name, columns=("Name", name, "128"), rows=rows, note=name)


def plain(name: str) -> Report:
    """A report without answers, warnings and conditions."""
    return Report(name, {}, [], [], [], [one(name)])


@pytest.mark.parametrize("name", NASTY)
def test_a_name_is_shown_literally(name: str):
    answer = replace(one(name), name="answer_x")
    report = Report(name, {name: name}, ["w", name], [name], [answer], [one(name)])
    made = html.page(report, {name: b"x"})
    seen = Seen(made.decode().replace("<wbr>", ""))
    assert seen.open == []
    assert set(seen.tags) <= KNOWN
    assert not [key for key, _ in seen.attributes if key.startswith("on") or key == "style"]
    links = [value for key, value in seen.attributes if key in ("href", "src")]
    kinds = ("#", "data:image/png;base64,", "data:,")
    assert all(link.startswith(kinds) for link in links)
    # heading; answer's heading and sentence; warning; line of the conditions; contents; caption; of
    # two tables title, column, two cells and note
    assert sum(text == clean(name) for text in seen.text) == 17
    assert f"{clean(name)} – attnbench" in seen.text


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=1, max_size=60))
def test_any_text_comes_back_as_it_was(text: str):
    seen = Seen(html.page(plain(text)).decode().replace("<wbr>", ""))
    assert seen.open == []
    assert set(seen.tags) <= KNOWN
    assert clean(text) in seen.text


def test_a_report_is_one_page_with_everything_in_it():
    whole = sweep(("fastformer", "transformer"), lengths=(128, 512, 2048, 65_536))
    made = page.report_files(analyse(whole))
    text = made["report.html"].decode()
    seen = Seen(text)
    assert seen.tags.count("img") == 2
    markdown = made["tables.md"].decode()
    assert seen.tags.count("table") == len(re.findall(r"^\| ---", markdown, re.MULTILINE))
    ids = [value for key, value in seen.attributes if key == "id"]
    links = {value for key, value in seen.attributes if key == "href"}
    assert len(set(ids)) == len(ids)
    assert links <= {"data:,", *(f"#{value}" for value in ids)}


def test_only_the_style_and_scripts_of_the_page_may_run():
    made = html.page(plain("s")).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', made)
    rules = dict(rule.split(" ", 1) for rule in unescape(policy).split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in policy
    for directive, element in (("style-src", "style"), ("script-src", "script")):
        (content,) = re.findall(rf"<{element}>(.*?)</{element}>", made, re.DOTALL)
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in rules[directive]


def test_the_sentence_comes_first_then_answers_warnings_conditions_and_tables():
    found = {"Found": "fastest"}
    lead = {"Fastest": "mine"}
    made = Report("s", found, ["busy"], ["asked"], [one("a")], [one("t")], lead=lead)
    text = html.page(made).decode()
    read = ("s", "Fastest", "mine", "Found", "fastest", "1 warning: busy", "asked", "t")
    places = [text.index(f">{each}</") for each in read]
    assert places == sorted(places)
    assert 'class="warnings"' not in html.page(plain("t")).decode()


def test_figures_are_embedded_whichever_formats_were_asked_for():
    made = page.report_files(analyse(sweep(("transformer",), lengths=(128, 512))), ("pdf",))
    assert made["report.html"].decode().count("data:image/png;base64,") == 2
    assert {name for name in made if name[-3:] in ("png", "pdf")} == {"fig2.pdf", "memory.pdf"}


def test_without_a_number_there_are_no_charts():
    whole = sweep(("mine",), lengths=(128,), rounds=0)
    refused = (replace(line, refusal="no causal form", declared=False) for line in whole.plan)
    found = analyse(replace(whole, plan=tuple(refused), runs=()))
    text = page.report_files(found)["report.html"].decode()
    assert 'id="charts"' not in text
    assert html.NO_CHARTS not in text
