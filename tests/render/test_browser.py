"""Pages in a real browser: Chromium, driven by Playwright."""

import csv
import io
import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median

import pytest

from attnbench import units
from attnbench.analysis.report import analyse
from attnbench.records import Case, Part, Sweep
from attnbench.render import check_page, html, styles
from attnbench.render.page import report_files
from attnbench.store.journal import load
from tests.render.test_check_page import LARGER, SLOWER, report
from tests.sweeps import sweep

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror=window.hacked=1>",
    '"\' onload="window.hacked=1',
    "{{ 7 * 7 }}{% endif %}",
)
pytestmark = pytest.mark.long
MECHANISMS = ("fastformer", "transformer", "linformer", *HOSTILE)
LENGTHS = (128, 512, 2048, 65_536)
MARKS = "svg [aria-roledescription=point]"


def missing() -> str:
    """Why no browser can be driven here, or nothing."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    if not chromium():
        return "no Chromium"
    if not html.VEGA.is_file():
        return "charts are put into the package when it is built or installed with -e"
    return ""


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser():
    if reason := missing():
        if os.environ.get("ATTNBENCH_TEST_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox"], timeout=120_000
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def whole() -> Sweep:
    return sweep(MECHANISMS, lengths=LENGTHS)


@pytest.fixture(scope="module")
def files(whole: Sweep, tmp_path_factory) -> dict[str, bytes]:
    return report_files(analyse(whole), ("svg",))


@pytest.fixture(scope="module")
def written(files, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_bytes(files["report.html"])
    return path


class Opened:
    """A page with all that it said, asked for and was denied."""

    def __init__(self, browser, path: Path, **options) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        self.context.set_default_timeout(60_000)
        self.complaints: list[str] = []
        self.page = self.context.new_page()
        self.context.add_init_script(
            "addEventListener('securitypolicyviolation',"
            " event => console.error('denied ' + event.violatedDirective + ' ' + event.blockedURI))"
        )
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", self._asked)
        self.url = path.as_uri()
        self.page.goto(self.url)
        if options.get("java_script_enabled", True):
            self.page.wait_for_selector("html.enhanced")

    def _asked(self, request) -> None:
        if request.url != self.url and not request.url.startswith(("data:", "blob:")):
            self.complaints.append(f"request to {request.url}")

    def quiet(self) -> bool:
        """Whether nothing was said, once all charts are drawn."""
        settled(self.page)
        return self.complaints == []


def settled(page) -> None:
    """Wait until all charts are drawn."""
    page.wait_for_selector("html:not(:has([aria-busy=true]))", state="attached")


@pytest.fixture(scope="module")
def shared(browser, written) -> Iterator[Opened]:
    opened = Opened(browser, written)
    yield opened
    opened.context.close()


@pytest.fixture
def opened(shared) -> Opened:
    """The shared page, loaded again."""
    shared.complaints.clear()
    shared.page.goto(shared.url)
    shared.page.wait_for_selector("html.drawn")
    return shared


def journal(whole: Sweep, mechanism: str, mode: str, length: int) -> tuple[Case, list[list[float]]]:
    """The case and, by round, the seconds of its samples, from nothing but the runs."""
    (case,) = (
        line.case
        for line in whole.plan
        if line.case.mechanism == mechanism
        and line.case.workload.mode == mode
        and line.case.workload.seq_len == length
    )
    runs = [r for r in whole.runs if r.case == case.key and r.part is Part.TIME]
    return case, [[s.wall_s / s.iterations for s in r.samples] for r in runs]


def test_every_choice_is_drawn_without_a_complaint(opened):
    page = opened.page
    assert not page.locator(".static").first.is_visible()
    assert page.locator("[name=show] option").all_inner_texts()[:5] == [
        "time per batch of 8,192 tokens",
        "speed-up over Transformer",
        "time per token",
        "tokens per second",
        "allocated peak",
    ]
    for name in page.locator("[name=show] option").all_inner_texts():
        page.select_option("[name=show]", label=name)
    page.select_option("[name=show]", index=0)
    page.uncheck("[name=mode][value=training]")
    page.select_option("[name=scale]", value="linear")
    page.uncheck("[name=predicted]")
    page.click("#series button[value=none]")
    page.click("#series button[value=all]")
    page.emulate_media(color_scheme="dark")
    assert opened.quiet(), opened.complaints
    page.emulate_media(color_scheme="light")


def point(page, name: str, length: int):
    """The marker of a series at a length, in the chart of training."""
    marks = page.locator("#costs figure").first.locator(MARKS).all()
    (found,) = (
        mark
        for mark in marks
        if f"sequence length N, tokens: {length};" in mark.get_attribute("aria-label")
        and f"name: {name};" in mark.get_attribute("aria-label")
    )
    return found


def hover(page, mark) -> None:
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 - 3, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


@pytest.mark.parametrize(("name", "length"), [("fastformer", 512), ("transformer", 2048)])
def test_hovering_shows_the_number_of_the_journal(opened, whole, name: str, length: int):
    _, rounds = journal(whole, name, "training", length)
    truth = math.exp(fmean(math.log(median(seconds)) for seconds in rounds))
    hover(opened.page, point(opened.page, name.capitalize(), length))
    tooltip = opened.page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    cells = tooltip.locator("td.value").all_inner_texts()
    assert cells[:2] == [name.capitalize(), f"{length:,}"]
    shown = re.fullmatch(r"(.*) \[(.*), (.*)\]", cells[2])
    assert shown[1] == units.seconds(truth)
    said = opened.page.locator("#costs output").first.inner_text()
    assert f"N = {length:,}: {cells[2]}" in said
    assert opened.quiet(), opened.complaints


def test_a_prediction_says_that_it_is_one(opened):
    label = point(opened.page, "Transformer", 65_536).get_attribute("aria-label")
    assert "predicted" in label
    assert "over budget" in label
    opened.page.uncheck("[name=predicted]")
    settled(opened.page)
    assert opened.page.locator(f"#costs {MARKS}[aria-label*=predicted]").count() == 0


def test_arrow_keys_read_the_chart(opened):
    page = opened.page
    page.locator("#costs .plot").first.focus()
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
        seen.append(page.locator("#costs output").first.inner_text().rpartition(":")[0])
    series = ("Fastformer", "Transformer")
    expected = [(series[0], 128), (series[0], 512), (series[1], 512), (series[1], 128)]
    assert [text[: text.index(" = ") + 6] for text in seen] == [
        f"{name}, N = {length}" for name, length in expected
    ]


def test_series_are_picked_and_highlighted(opened):
    page = opened.page
    page.locator("#series").get_by_label("Linformer").uncheck()
    settled(page)
    assert page.locator(f"#costs {MARKS}[aria-label*=Linformer]").count() == 0
    page.locator("#series label").first.hover()
    for opacity in ("1", "0.12"):
        page.wait_for_selector(f"#costs {MARKS}[opacity='{opacity}']")


def label(series: str) -> str:
    """The label of a series, of which the sweep has one per mechanism."""
    return styles.labels([series])[series]


def column(table, number: int) -> list[str]:
    """The texts of the visible cells of a column."""
    return [
        cell.inner_text()
        for cell in table.locator(f"tbody tr > :nth-child({number})").all()
        if cell.is_visible()
    ]


def test_sorting_sorts_by_value_and_leaves_what_was_not_measured_last(opened, files):
    table = opened.page.locator("table[data-file='latency_training.csv']")
    rows = csv.DictReader(io.StringIO(files["latency_training.csv"].decode()))
    times = {
        # a name that begins like a formula has an apostrophe in a file
        label(row["series"].lstrip("'")): float(row["time_ms"] or "inf")
        for row in rows
        if row["seq_len"] == "65536"
    }
    head = table.locator("thead th").last
    for direction, sign in (("ascending", 1), ("descending", -1)):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == direction
        found = [times[name.lstrip("'")] for name in column(table, 1)]
        finite = [time for time in found if time < math.inf]
        assert finite == sorted(finite, key=lambda time: sign * time)
        assert set(found[len(finite) :]) == {math.inf}
    table.locator("thead button").first.press("Enter")
    names = column(table, 1)
    words = [name for name in names if name[0].isalpha()]
    assert words == sorted(words)
    assert len(words) == len(MECHANISMS) - len(HOSTILE)


def test_filtering_leaves_the_rows_with_all_words(opened):
    table = opened.page.locator("table[data-file='latency_training.csv']")
    box = opened.page.locator("section.table", has=table)
    total = len(column(table, 1))
    box.locator("input[type=search]").fill("FORMER Lin")
    names = column(table, 1)
    assert 0 < len(names) < total
    assert all("former" in name and "Lin" in name for name in names)
    assert box.locator(".tools output").inner_text() == f"{len(names)} of {total} rows"
    box.locator("input[type=search]").fill("")
    assert len(column(table, 1)) == total


def test_downloads_are_the_files_of_the_report(opened, files):
    page = opened.page
    for button, name in (
        (page.get_by_role("button", name="every case (CSV)"), "cases.csv"),
        (page.get_by_label("Download latency_training.csv"), "latency_training.csv"),
    ):
        with page.expect_download() as event:
            button.click()
        assert event.value.suggested_filename == name
        assert Path(event.value.path()).read_bytes() == files[name]
    with page.expect_download() as event:
        page.get_by_role("button", name="charts (JSON)").click()
    assert json.loads(Path(event.value.path()).read_text())["modes"] == ["training", "inference"]
    assert opened.quiet(), opened.complaints


def test_hostile_names_stay_text(opened):
    page = opened.page
    labels = page.locator("#series label").all_inner_texts()
    assert [label.strip() for label in labels][-len(HOSTILE) :] == [*HOSTILE]
    for name in HOSTILE:
        hover(page, point(page, name, 128))
    assert page.evaluate("window.hacked") is None
    assert opened.quiet(), opened.complaints


def test_a_link_shows_what_its_sender_saw(browser, opened, written):
    page = opened.page
    page.select_option("[name=show]", label="allocated peak")
    page.uncheck("[name=mode][value=training]")
    page.locator("#series").get_by_label("Linformer").uncheck()
    page.select_option("[name=scale]", label="linear")

    def seen(page) -> list[str]:
        settled(page)
        marks = page.locator(f"#costs {MARKS}:visible").all()
        return [mark.get_attribute("aria-label") for mark in marks]

    sent = seen(page)
    assert not any("Linformer" in label for label in sent)
    received = Opened(browser, written)
    received.page.goto(page.url)
    received.page.reload()
    received.page.wait_for_selector("html.drawn")
    assert seen(received.page) == sent
    assert received.page.locator("[name=show]").input_value() == "allocated_peak_bytes"
    received.context.close()
    for _ in range(4):
        page.go_back()
    assert page.locator("[name=show]").input_value() == "time_s"
    assert page.locator("#series").get_by_label("Linformer").is_checked()
    assert len(seen(page)) > len(sent)
    page.evaluate("location.hash = 'charts-title'")
    page.go_back()
    assert opened.quiet(), opened.complaints


def test_a_link_with_unknown_names_shows_the_usual(browser, written):
    opened = Opened(browser, written)
    opened.page.goto(f"{opened.url}#show=nothing&mode=dancing&x=1")
    opened.page.reload()
    opened.page.wait_for_selector("html.drawn")
    assert opened.page.locator("[name=show]").input_value() == "time_s"
    assert opened.quiet(), opened.complaints
    opened.context.close()


@pytest.mark.parametrize(("width", "beside"), [(1600, True), (1000, True), (400, False)])
def test_modes_stand_side_by_side_where_there_is_room(browser, written, width, beside):
    opened = Opened(browser, written, viewport={"width": width, "height": 768})
    opened.page.wait_for_selector("html.drawn")
    figures = opened.page.locator("#costs figure").all()
    training, inference = (figure.bounding_box() for figure in figures)
    assert (training["y"] == inference["y"]) == beside
    assert (training["x"] == inference["x"]) != beside
    assert training["width"] == pytest.approx(inference["width"], abs=1)
    assert opened.quiet(), opened.complaints
    opened.context.close()


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "report.html"
    path.write_bytes(report_files(analyse(load("reports/cpu-fig2")))["report.html"])
    return path


@pytest.mark.parametrize(("width", "height"), [(1000, 768), (1600, 900)])
def test_the_answer_and_a_chart_are_on_the_first_screen(browser, stored, width, height):
    opened = Opened(browser, stored, viewport={"width": width, "height": height})
    page = opened.page
    page.wait_for_selector("html.drawn")
    header = page.locator("header").inner_text()
    facts = ("EPYC", "2026-11-2", "8,192 tokens", "torch 2.13", "attnbench sweep --budget ")
    assert [fact for fact in facts if fact not in header] == []
    table = page.locator("header table").bounding_box()
    chart = page.locator("#costs .plot").first.bounding_box()
    assert table["y"] + table["height"] <= height
    assert chart["y"] < height
    assert opened.quiet(), opened.complaints
    opened.context.close()


# the height of a row less that of the texts which can be seen of it, in pixels
BLANK = """() => [...document.querySelectorAll('tbody tr')].map((row) => {
  const texts = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  const seen = [];
  while (texts.nextNode()) {
    range.selectNodeContents(texts.currentNode);
    seen.push(...[...range.getClientRects()].filter((box) => box.left < innerWidth));
  }
  const ends = (side) => seen.map((box) => box[side]);
  return row.offsetHeight - (Math.max(...ends('bottom')) - Math.min(...ends('top')));
})"""


def test_a_narrow_page_has_no_blank_rows_and_never_scrolls_sideways(browser, stored):
    opened = Opened(browser, stored, viewport={"width": 400, "height": 800})
    page = opened.page
    page.wait_for_selector("html.drawn")
    wide = (
        "[...document.querySelectorAll('html, .wide')].filter(e => e.scrollWidth > e.clientWidth)"
    )
    assert page.evaluate(f"{wide}.length") == 0
    assert max(page.evaluate(BLANK)) < 40, "the margin, and a line with the name of a column"
    assert opened.quiet(), opened.complaints
    opened.context.close()


CONTRAST = """(selector) => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (colour) => {
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const [r, g, b] = rgb(colour).map((x) => x / 255)
      .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll(selector)].map((element) => {
    const style = getComputedStyle(element);
    const own = light(element instanceof SVGElement ? style.fill : style.color);
    return (Math.max(own, back) + 0.05) / (Math.min(own, back) + 0.05);
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_is_readable_on_a_phone_and_in_the_dark(browser, written, width: int, scheme: str):
    opened = Opened(browser, written, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = opened.page
    page.wait_for_selector("html.drawn")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for selector, least in (
        ("h1, h2, p, li, td, th, label, figcaption, a, select", 4.5),
        ("#costs svg text", 4.5),
        ("#series svg path:last-child", 2.0),
    ):
        found = page.evaluate(CONTRAST, selector)
        assert found
        assert min(found) >= least, selector
    assert opened.quiet(), opened.complaints
    opened.context.close()


def test_without_scripts_figures_and_tables_remain(browser, written):
    opened = Opened(browser, written, java_script_enabled=False)
    assert opened.page.locator("#charts").is_hidden()
    pictures = opened.page.locator("figure.static img").all()
    assert len(pictures) == 2
    assert all(picture.is_visible() for picture in pictures)
    assert opened.page.locator("table").first.is_visible()
    assert opened.page.locator("table button").count() == 0
    assert opened.quiet(), opened.complaints
    opened.context.close()


def test_what_screen_readers_need_is_there(opened):
    page = opened.page
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, select, input, [tabindex], table')]"
        ".filter(e => !(e.ariaLabel || e.labels?.length || e.textContent.trim()"
        " || document.getElementById(e.getAttribute('aria-labelledby')))).length"
    )
    assert unnamed == 0
    drawn = page.locator("#costs [role=graphics-document]").first
    assert drawn.get_attribute("aria-label") == (
        "time per batch of 8,192 tokens against sequence length, training"
    )
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(e => e.tagName)")
    assert levels[0] == "H1"
    assert levels.count("H1") == 1


def test_a_check_has_a_page_of_the_same_kind(browser, tmp_path):
    path = tmp_path / "check.html"
    path.write_bytes(check_page.web_page(report(SLOWER, LARGER)))
    opened = Opened(browser, path)
    assert "FAILED: 1 slower, 1 larger" in opened.page.locator(".answers h2").inner_text()
    opened.page.locator("thead button").first.click()
    assert opened.page.locator("table").count() == 2
    assert opened.quiet(), opened.complaints
    opened.context.close()
