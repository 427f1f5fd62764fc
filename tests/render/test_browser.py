"""Pages in a real browser: Chromium, driven by Playwright."""

import csv
import io
import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

import pytest

from attnbench import units
from attnbench.analysis.compare import compare
from attnbench.analysis.report import analyse
from attnbench.records import Case, Outcome, Part, Sweep
from attnbench.render import check_page, comparison, html
from attnbench.render.page import report_files
from tests.render.test_check_page import LARGER, SLOWER, report
from tests.sweeps import sweep

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror=window.hacked=1>",
    '"\' onload="window.hacked=1',
    "{{ 7 * 7 }}{% endif %}",
)
MECHANISMS = ("fastformer", "transformer", "linformer", *HOSTILE)
LENGTHS = (128, 512, 2048, 65_536)


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
        self.page.wait_for_function("!document.querySelector('[aria-busy=true]')")
        return self.complaints == []


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
    assert page.locator("#roofline svg").count() == 1
    assert not page.locator(".static").first.is_visible()
    quantities = page.locator("#choices [name=quantity] option").all_inner_texts()
    assert quantities[:5] == [
        "time per batch of 8,192 tokens",
        "speed-up over transformer:eager",
        "time per token",
        "tokens per second",
        "allocated peak",
    ]
    for name in quantities:
        page.select_option("#choices [name=quantity]", label=name)
    page.select_option("#choices [name=quantity]", index=0)
    page.select_option("#choices [name=mode]", label="inference")
    page.select_option("#choices [name=scale]", value="linear")
    page.uncheck("#choices [name=predicted]")
    page.click("#series button[value=none]")
    page.click("#series button[value=all]")
    page.select_option("#samples [name=n]", label="2,048")
    page.emulate_media(color_scheme="dark")
    assert opened.quiet(), opened.complaints
    page.emulate_media(color_scheme="light")


def point(page, name: str, length: int):
    """The marker of a series at a length."""
    marks = page.locator("#costs svg [aria-roledescription=point]").all()
    (found,) = (
        mark
        for mark in marks
        if f"sequence length N, tokens: {length};" in mark.get_attribute("aria-label")
        and f"name: {name};" in mark.get_attribute("aria-label")
    )
    return found


def hover(page, mark) -> None:
    page.locator("#costs .plot").scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 - 3, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


@pytest.mark.parametrize(("name", "length"), [("fastformer", 512), ("transformer", 2048)])
def test_hovering_shows_the_number_of_the_journal(opened, whole, name: str, length: int):
    _, rounds = journal(whole, name, "training", length)
    truth = math.exp(fmean(math.log(median(seconds)) for seconds in rounds))
    hover(opened.page, point(opened.page, f"{name}:eager", length))
    tooltip = opened.page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    cells = tooltip.locator("td.value").all_inner_texts()
    assert cells[:2] == [f"{name}:eager", f"{length:,}"]
    shown = re.fullmatch(r"(.*) \[(.*), (.*)\]", cells[2])
    assert shown[1] == units.seconds(truth)
    assert f"N = {length:,}: {cells[2]}" in opened.page.locator("#costs output").inner_text()
    assert opened.quiet(), opened.complaints


def test_a_prediction_says_that_it_is_one(opened):
    label = point(opened.page, "transformer:eager", 65_536).get_attribute("aria-label")
    assert "predicted" in label
    assert "over budget" in label
    opened.page.uncheck("#choices [name=predicted]")
    opened.page.wait_for_function(
        "![...document.querySelectorAll('#costs svg [aria-roledescription=point]')]"
        ".some(mark => mark.getAttribute('aria-label').includes('predicted'))"
    )


def test_arrow_keys_read_the_chart(opened):
    page = opened.page
    page.focus("#costs .plot")
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
        seen.append(page.locator("#costs output").inner_text().rpartition(":")[0])
    series = ("fastformer:eager", "transformer:eager")
    expected = [(series[0], 128), (series[0], 512), (series[1], 512), (series[1], 128)]
    assert [text[: text.index(" = ") + 6] for text in seen] == [
        f"{name}, N = {length}" for name, length in expected
    ]


def test_series_are_picked_and_highlighted(opened):
    page = opened.page
    page.get_by_label("linformer:eager").first.uncheck()
    page.wait_for_function(
        "![...document.querySelectorAll('#costs svg [aria-roledescription=point]')]"
        ".some(mark => mark.getAttribute('aria-label').includes('linformer:eager'))"
    )
    page.locator("#series label").first.hover()
    page.wait_for_function(
        "new Set([...document.querySelectorAll('#costs svg [aria-roledescription=point]')]"
        ".map(mark => mark.getAttribute('opacity'))).size == 2"
    )


def test_every_sample_of_a_case_is_drawn(opened, whole):
    page = opened.page
    page.select_option("#samples [name=series]", label="linformer:eager")
    page.select_option("#samples [name=mode]", label="inference")
    page.select_option("#samples [name=n]", label="512")
    page.wait_for_selector("#samples .plot[aria-label*='linformer:eager, inference, N = 512']")
    _, rounds = journal(whole, "linformer", "inference", 512)
    page.wait_for_function(
        "document.querySelectorAll('#samples svg [aria-roledescription=point]').length"
        f" == {sum(map(len, rounds))}"
    )
    labels = [
        mark.get_attribute("aria-label")
        for mark in page.locator("#samples svg [aria-roledescription=point]").all()
    ]
    shown = [re.search(r"Value: round (\d+): ([\d.]+) ms", label).groups() for label in labels]
    truth = [(i + 1, 1e3 * s) for i, seconds in enumerate(rounds) for s in seconds]
    found = sorted((int(number), float(value)) for number, value in shown)
    assert found == [(number, pytest.approx(ms, rel=1e-5)) for number, ms in sorted(truth)]


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
        row["series"]: float(row["time_ms"] or "inf") for row in rows if row["seq_len"] == "65536"
    }
    head = table.locator("thead th").last
    for direction, sign in (("ascending", 1), ("descending", -1)):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == direction
        # a name that begins like a formula has an apostrophe in a file
        found = [times.get(name, times.get(f"'{name}")) for name in column(table, 1)]
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
    box.locator("input[type=search]").fill("FORMER eager")
    names = column(table, 1)
    assert 0 < len(names) < total
    assert all("former" in name and "eager" in name for name in names)
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
        page.get_by_role("button", name="charts and samples (JSON)").click()
    assert json.loads(Path(event.value.path()).read_text())["modes"] == ["training", "inference"]
    assert opened.quiet(), opened.complaints


def test_hostile_names_stay_text(opened):
    page = opened.page
    labels = page.locator("#series label").all_inner_texts()
    names = [f"{name}:eager" for name in HOSTILE]
    assert [label.strip() for label in labels][-len(names) :] == names
    for name in names:
        page.select_option("#samples [name=series]", label=name)
        hover(page, point(page, name, 128))
    assert page.evaluate("window.hacked") is None
    assert opened.quiet(), opened.complaints


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
    assert len(pictures) == 3
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
    assert page.locator("#costs [role=graphics-document]").get_attribute("aria-label") == (
        "time per batch of 8,192 tokens against sequence length, training"
    )
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(e => e.tagName)")
    assert levels[0] == "H1"
    assert levels.count("H1") == 1


def test_two_sweeps_have_a_page_with_their_ratios(browser, whole, tmp_path):
    slower = replace(
        whole,
        runs=tuple(
            replace(run, samples=tuple(s._replace(wall_s=2 * s.wall_s) for s in run.samples))
            if run.outcome is Outcome.OK
            else run
            for run in whole.runs
        ),
    )
    found = compare(analyse(whole), analyse(slower))
    path = tmp_path / "compare.html"
    names = ("one", HOSTILE[0])
    path.write_bytes(comparison.web_page(names, found, {"first": ["it was busy"], "second": []}))
    opened = Opened(browser, path)
    page = opened.page
    page.wait_for_selector("html.drawn")
    assert page.locator("h1").inner_text() == f"{HOSTILE[0]} compared with one"
    assert "first sweep: it was busy" in page.locator(".warnings").inner_text()
    label = point(page, "fastformer:eager", 512).get_attribute("aria-label")
    assert "Value: 2.00×" in label
    assert page.evaluate("window.hacked") is None
    assert opened.quiet(), opened.complaints
    opened.context.close()


def test_a_check_has_a_page_of_the_same_kind(browser, tmp_path):
    path = tmp_path / "check.html"
    path.write_bytes(check_page.web_page(report(SLOWER, LARGER)))
    opened = Opened(browser, path)
    assert "FAILED: 1 slower, 1 larger" in opened.page.locator(".answers h2").inner_text()
    opened.page.locator("thead button").first.click()
    assert opened.page.locator("table").count() == 2
    assert opened.quiet(), opened.complaints
    opened.context.close()
