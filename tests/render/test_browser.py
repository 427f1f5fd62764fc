"""Pages in a real browser: Chromium, driven by Playwright."""

import csv
import io
import math
import os
import shutil
from pathlib import Path

import pytest

from attnbench import units
from attnbench.analysis.report import analyse
from attnbench.records import Sweep
from attnbench.render import html, styles
from attnbench.render.page import report_files
from attnbench.store.journal import load
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
MARKS = "#plots svg [aria-roledescription=circle]"


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
        self.open(self.url, drawn=options.get("java_script_enabled", True))

    def open(self, url: str, drawn: bool = True) -> None:
        """Load the page anew, and wait for its charts, if it has any."""
        self.page.goto("about:blank")
        self.page.goto(url)
        if drawn and self.page.locator("#data").count():
            self.page.wait_for_selector("html.drawn")

    def _asked(self, request) -> None:
        if request.url.partition("#")[0] != self.url and not request.url.startswith(
            ("data:", "blob:")
        ):
            self.complaints.append(f"request to {request.url}")

    def quiet(self) -> bool:
        """Whether nothing was said, once all charts are drawn."""
        settled(self.page)
        return self.complaints == []


def settled(page) -> None:
    """Wait until all charts are drawn, if there are any."""
    page.wait_for_selector("html:not(:has([aria-busy=true]))", state="attached")


@pytest.fixture
def opening(browser):
    """Opens pages, which must stay quiet, and closes them."""
    pages = []

    def opened(path: Path, **options) -> Opened:
        pages.append(Opened(browser, path, **options))
        return pages[-1]

    yield opened
    for each in pages:
        assert each.quiet(), each.complaints
        each.context.close()


@pytest.fixture
def opened(opening, written) -> Opened:
    """The page of the sweep."""
    return opening(written)


def test_every_choice_is_drawn_without_a_complaint(opened):
    page = opened.page
    assert not page.locator(".static").first.is_visible()
    first, more = page.locator("[name=show] optgroup").all()
    compared = first.locator("option").all_inner_texts()
    assert compared[0] == "wall time on 2 threads per batch of 8,192 tokens"
    assert "speed-up over Transformer" in compared
    assert len(compared) <= 10
    assert "operators" in more.locator("option").all_inner_texts()
    for name in page.locator("[name=show] option").all_inner_texts():
        page.select_option("[name=show]", label=name)
        settled(page)
        assert page.locator(MARKS).count() > 0
    page.select_option("[name=show]", index=0)
    for drawn in (False, True):
        page.click("#charts button")
        settled(page)
        assert bool(page.locator(MARKS).count()) == drawn


def point(page, name: str, length: int):
    """The marker of a series at a length, in the chart of training."""
    wanted = f" n: {length}; name: {name};"
    marks = page.locator(MARKS).all()
    return next(mark for mark in marks if wanted in mark.get_attribute("aria-label"))


def hover(page, mark) -> None:
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 - 3, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def test_hovering_shows_the_number_of_the_table(opened, files):
    rows = csv.DictReader(io.StringIO(files["latency_training.csv"].decode()))
    (known,) = (r for r in rows if (r["series"], r["seq_len"]) == ("fastformer:eager", "512"))
    hover(opened.page, point(opened.page, "Fastformer", 512))
    tooltip = opened.page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    cells = tooltip.locator("td.value").all_inner_texts()
    assert cells[:2] == ["Fastformer", "512"]
    assert cells[2].split(" [")[0] == units.seconds(float(known["time_ms"]) / 1000)


def test_a_prediction_says_that_it_is_one_and_leaves_the_axis_to_what_was_measured(opened):
    label = point(opened.page, "Transformer", 65_536).get_attribute("aria-label")
    assert "predicted" in label
    assert "over budget" in label
    known = [{"value": 1, "low": 0.9, "high": 1.2}, {"value": 8, "low": 7, "high": 9}]
    far = {"value": 1000, "low": 3, "high": 1e5, "predicted": True}
    ends = "points => domain(points, true)"
    assert opened.page.evaluate(ends, [*known, far]) == [0.9, 32]
    assert opened.page.evaluate(ends, [far]) == [250, 4000]


def test_series_are_picked_and_highlighted(opened):
    page = opened.page
    page.locator("fieldset").get_by_label("Linformer").uncheck()
    page.keyboard.press("Enter")
    settled(page)
    assert page.locator(f"{MARKS}[aria-label*=Linformer]").count() == 0
    page.locator("fieldset label").first.hover()
    for opacity in ("1", "0.12"):
        page.wait_for_selector(f"{MARKS}[opacity='{opacity}']")


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
    table = opened.page.locator("table[aria-labelledby='latency-training']")
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


def test_hostile_names_stay_text(opened):
    page = opened.page
    labels = page.locator("fieldset label").all_inner_texts()
    assert [label.strip() for label in labels][-len(HOSTILE) :] == [*HOSTILE]
    for name in HOSTILE:
        hover(page, point(page, name, 128))
    assert page.evaluate("window.hacked") is None


def test_a_link_shows_what_its_sender_saw(opening, opened, written):
    page = opened.page
    page.select_option("[name=show]", label="allocated peak")
    page.locator("fieldset").get_by_label("Linformer").uncheck()

    def seen(page) -> list[str]:
        settled(page)
        return [mark.get_attribute("aria-label") for mark in page.locator(MARKS).all()]

    sent = seen(page)
    assert not any("Linformer" in label for label in sent)
    received = opening(written)
    for link, shown, same in (
        (page.url, "allocated_peak_bytes", True),
        (f"{opened.url}#show=nothing&x=1", "time_s", False),
    ):
        received.open(link)
        assert received.page.locator("[name=show]").input_value() == shown
        assert (seen(received.page) == sent) == same
    for _ in range(2):
        page.go_back()
    assert page.locator("[name=show]").input_value() == "time_s"
    assert page.locator("fieldset").get_by_label("Linformer").is_checked()
    assert len(seen(page)) > len(sent)
    page.evaluate("location.hash = 'conditions'")
    page.go_back()


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "report.html"
    path.write_bytes(report_files(analyse(load("reports/cpu-fig2")))["report.html"])
    return path


@pytest.mark.parametrize(("width", "height"), [(1000, 768), (1600, 900)])
def test_the_first_screen_has_the_answer_what_was_not_measured_and_a_chart_with_its_legend(
    opening, stored, width, height
):
    opened = opening(stored, viewport={"width": width, "height": height})
    page = opened.page
    header = page.locator("header").inner_text()
    facts = ("EPYC", "2026-11-2", "8,192 tokens", "torch 2.13", "attnbench sweep --budget ")
    facts += ("Fastest", "Least memory", "Limits of length", "Not measured")
    assert [fact for fact in facts if fact not in header] == []
    table = page.locator("header table").bounding_box()
    assert table["y"] + table["height"] <= height
    training, inference = (plot.bounding_box() for plot in page.locator(".plot").all())
    legend = page.locator("fieldset label").first.bounding_box()
    assert training["y"] == inference["y"] < height
    assert legend["y"] + legend["height"] < height
    assert training["x"] + training["width"] < inference["x"]
    assert inference["x"] + inference["width"] < legend["x"]


def test_a_narrow_page_never_scrolls_sideways(opening, stored):
    opened = opening(stored, viewport={"width": 400, "height": 800})
    page = opened.page
    wide = (
        "[...document.querySelectorAll('html, .wide')].filter(e => e.scrollWidth > e.clientWidth)"
    )
    assert page.evaluate(f"{wide}.length") == 0


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


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light"), (1280, "dark")])
def test_a_page_is_readable_on_a_phone_and_in_the_dark(opening, written, width: int, scheme: str):
    opened = opening(written, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = opened.page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for selector, least in (
        ("h1, h2, p, li, td, th, label, figcaption, a, select", 4.5),
        ("#plots svg text", 4.5),
        ("fieldset svg path:last-child", 2.0),
    ):
        found = page.evaluate(CONTRAST, selector)
        assert found
        assert min(found) >= least, selector


def test_without_scripts_figures_and_tables_remain(opening, written):
    opened = opening(written, java_script_enabled=False)
    assert opened.page.locator("#charts").is_hidden()
    pictures = opened.page.locator("figure.static img").all()
    assert len(pictures) == 2
    assert all(picture.is_visible() for picture in pictures)
    assert opened.page.locator("table").first.is_visible()
    assert opened.page.locator("table button").count() == 0


def test_what_screen_readers_need_is_there(opened):
    page = opened.page
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, select, input, [tabindex], table')]"
        ".filter(e => !(e.ariaLabel || e.labels?.length || e.textContent.trim()"
        " || document.getElementById(e.getAttribute('aria-labelledby')))).length"
    )
    assert unnamed == 0
    drawn = page.locator("#plots [role=graphics-document]").first
    assert drawn.get_attribute("aria-label") == (
        "wall time on 2 threads per batch of 8,192 tokens against sequence length, training"
    )
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(e => e.tagName)")
    assert levels[0] == "H1"
    assert levels.count("H1") == 1
