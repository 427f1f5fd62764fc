"""Pages in a real browser: Chromium, driven by Playwright."""

import os
import shutil
from pathlib import Path

import pytest

from attnbench.analysis.report import analyse
from attnbench.records.storage.journal import load
from attnbench.report import html
from attnbench.report.page import report_files
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


@pytest.fixture(scope="module")
def browser():
    """Chromium, without which tests are skipped unless it is required."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if not (path and html.VEGA.is_file()):
        required = os.environ.get("ATTNBENCH_TEST_BROWSER") == "required"
        end = pytest.fail if required else pytest.skip
        end("no Chromium, no playwright, or no charts: the build puts them into the package")
    with sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox"], timeout=120_000
        )
        yield started
        started.close()


def report(found, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_bytes(report_files(analyse(found))["report.html"])
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    return report(sweep(MECHANISMS, lengths=LENGTHS), tmp_path_factory.mktemp("page"))


@pytest.fixture
def opening(browser):
    """Opens pages, which must say nothing and ask for nothing, and closes them."""
    contexts, complaints = [], []

    def opened(path: Path, fragment: str = "", **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        context.set_default_timeout(180_000)
        contexts.append(context)
        page = context.new_page()
        # what the policy denied is on the console
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: complaints.extend(outside(request.url, path)))
        page.goto(f"{path.as_uri()}#{fragment}")
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html.drawn")
        return page

    yield opened
    for context in contexts:
        settled(context.pages[0])
        context.close()
    assert complaints == []


def outside(url: str, path: Path) -> list[str]:
    """The address, unless it is that of the page, blank or data."""
    own = url.partition("#")[0] in (path.as_uri(), "about:blank")
    return [] if own or url.startswith(("data:", "blob:")) else [url]


def mechanism_files() -> list[str]:
    return sorted(path.stem for path in Path("attnbench/mechanisms").glob("[a-z]*.py"))


def settled(page) -> None:
    """Wait until all charts are drawn, if there are any."""
    page.wait_for_selector("html:not(:has([aria-busy=true]))", state="attached")


@pytest.fixture
def page(opening, written):
    """The page of the sweep."""
    return opening(written)


def test_every_choice_is_drawn_without_a_complaint(page):
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


def test_hovering_shows_the_number_of_the_table(page):
    row = page.locator("table[aria-labelledby='latency_training'] tr", has_text="Fastformer")
    known = row.locator("[data-column='512']").inner_text().split()[0]
    hover(page, point(page, "Fastformer", 512))
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    cells = tooltip.locator("td.value").all_inner_texts()
    assert cells[:2] == ["Fastformer", "512"]
    number, unit = cells[2].split(" [")[0].split()
    assert (float(number), unit) == (pytest.approx(float(known), rel=0.02), "ms")


def test_a_prediction_says_that_it_is_one_and_leaves_the_axis_to_what_was_measured(page):
    label = point(page, "Transformer", 65_536).get_attribute("aria-label")
    assert "predicted" in label
    assert "over budget" in label
    known = [{"value": 1, "low": 0.9, "high": 1.2}, {"value": 8, "low": 7, "high": 9}]
    far = {"value": 1000, "low": 1000, "high": 1000, "predicted": True}
    ends = "points => domain(points, true)"
    assert page.evaluate(ends, [*known, far]) == [0.9, 32]
    assert page.evaluate(ends, [far]) == pytest.approx([1000 / 2**0.5, 1000 * 2**0.5])


def test_series_are_picked_and_highlighted(page):
    page.locator("fieldset").get_by_label("Linformer").uncheck()
    page.keyboard.press("Enter")
    settled(page)
    assert page.locator(f"{MARKS}[aria-label*=Linformer]").count() == 0
    page.locator("fieldset label").first.hover()
    for opacity in ("1", "0.12"):
        page.wait_for_selector(f"{MARKS}[opacity='{opacity}']")


def test_hostile_names_stay_text(page):
    labels = page.locator("fieldset label").all_inner_texts()
    assert [label.strip() for label in labels][-len(HOSTILE) :] == [*HOSTILE]
    for name in HOSTILE:
        hover(page, point(page, name, 128))
    assert page.evaluate("window.hacked") is None


def test_a_link_shows_what_its_sender_saw(opening, page, written):
    page.select_option("[name=show]", label="allocated peak")
    page.locator("fieldset").get_by_label("Linformer").uncheck()

    def seen(page) -> list[str]:
        settled(page)
        return [mark.get_attribute("aria-label") for mark in page.locator(MARKS).all()]

    sent = seen(page)
    assert not any("Linformer" in label for label in sent)
    for fragment, shown, same in (
        (page.url.partition("#")[2], "allocated_peak_bytes", True),
        ("show=nothing&x=1", "time_s", False),
    ):
        received = opening(written, fragment)
        assert received.locator("[name=show]").input_value() == shown
        assert (seen(received) == sent) == same


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    return report(load("reports/cpu-fig2"), tmp_path_factory.mktemp("stored"))


@pytest.mark.parametrize(("width", "height"), [(1000, 768), (1600, 900)])
def test_the_first_screen_has_title_answer_and_charts_with_their_legend(
    opening, stored, width, height
):
    page = opening(stored, viewport={"width": width, "height": height})
    title = page.locator("h1").inner_text()
    assert title == "7 mechanisms, 128 to 65,536 tokens, on an AMD EPYC"
    assert (
        "Fastest in training: Fastformer and Linformer tie" in page.locator("header").inner_text()
    )
    training, inference = (plot.bounding_box() for plot in page.locator(".plot").all())
    legend = page.locator("fieldset label").first.bounding_box()
    assert training["y"] == inference["y"]
    assert training["y"] + training["height"] <= height
    assert legend["y"] + legend["height"] < height
    assert training["x"] + training["width"] < inference["x"]
    assert inference["x"] + inference["width"] < legend["x"]


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    every = sweep(tuple(mechanism_files()), lengths=(128, 2048))
    return report(every, tmp_path_factory.mktemp("many"))


@pytest.mark.parametrize("of", ["stored", "many"])
def test_a_telephone_shows_a_chart_without_scrolling(opening, request, of):
    page = opening(request.getfixturevalue(of), viewport={"width": 400, "height": 800})
    plot = page.locator(".plot").first.bounding_box()
    assert plot["y"] + plot["height"] <= 800


def test_the_legend_of_many_series_stands_below_their_charts(opening, many):
    page = opening(many, viewport={"width": 1600, "height": 900})
    assert page.locator("h1").inner_text().startswith(f"{len(mechanism_files())} mechanisms, ")
    plots = page.locator("#plots").bounding_box()
    labels = [label.bounding_box() for label in page.locator("fieldset label").all()]
    assert plots["y"] + plots["height"] <= min(label["y"] for label in labels)
    assert max(label["y"] + label["height"] for label in labels) <= 900


def test_each_answer_leads_to_its_cells_and_nothing_is_cut(opening, stored):
    page = opening(stored, viewport={"width": 1600, "height": 900})
    answers = page.locator(".answers li")
    assert answers.count() == 6
    for link in answers.locator("a").all():
        assert page.locator(link.get_attribute("href")).count() == 1
    assert answers.locator("a").count() == answers.count()
    for folded in page.locator("details").all():
        folded.evaluate("folded => { folded.open = true; }")
    cut = "[...document.querySelectorAll('body *')].filter(e => e.scrollHeight > e.clientHeight + 1"
    cut += " && ['hidden', 'auto', 'scroll'].includes(getComputedStyle(e).overflowY)"
    cut += " && !e.closest('svg, select')).map(e => e.outerHTML.slice(0, 200))"
    assert page.evaluate(cut) == []
    assert "8,192 tokens per batch" in page.locator(".conditions").inner_text()


def test_tables_are_sorted_by_their_headings(page):
    table = page.locator("table[aria-labelledby=latency_training]")
    heading = table.locator("thead th").nth(1)

    def values() -> list[float]:
        cells = table.locator("tbody tr td:nth-child(2)")
        return cells.evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))")

    heading.locator("button").press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert values() == sorted(values())
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert values() == sorted(values(), reverse=True)
    name = table.locator("thead th").first
    name.locator("button").click()
    assert heading.get_attribute("aria-sort") is None
    names = table.locator("tbody th").all_inner_texts()
    assert names.index("Fastformer") < names.index("Linformer") < names.index("Transformer")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_telephone_sorts_tables_by_a_menu(opening, written, scheme):
    page = opening(written, viewport={"width": 400, "height": 800}, color_scheme=scheme)
    table = page.locator("table[aria-labelledby=latency_training]")
    menu = table.locator("xpath=..").get_by_label("Sorted by")
    assert not table.locator("thead").is_visible()
    assert menu.bounding_box()["height"] >= 36, "a finger meets it"
    names = table.locator("tbody th").all_inner_texts()
    for group in ("smallest first", "largest first"):
        option = menu.locator(f"optgroup[label='{group}'] option").nth(1)
        menu.select_option(option.get_attribute("value"))
        cells = table.locator("tbody tr td:nth-child(2)")
        values = cells.evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))")
        assert values == sorted(values, reverse=group == "largest first")
    assert table.locator("tbody th").all_inner_texts() != names
    menu.select_option("")
    assert table.locator("tbody th").all_inner_texts() == names


@pytest.mark.parametrize("width", [1000, 1600])
def test_where_headings_are_seen_there_is_no_menu(opening, written, width):
    page = opening(written, viewport={"width": width, "height": 800})
    assert not any(menu.is_visible() for menu in page.locator(".sort").all())


GUIDES = "#plots svg text:text-matches('^∝ N²?$')"


@pytest.mark.parametrize("width", [400, 1000, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_guides_of_slopes_are_shown_and_sent_in_links(opening, stored, width, scheme):
    page = opening(stored, viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert page.locator(GUIDES).count() == 0
    marks = page.locator(MARKS).count()
    page.get_by_label("slopes of N and N²").check()
    settled(page)
    # each name stands on a copy of itself in the colour of the paper
    assert sorted(page.locator(GUIDES).all_text_contents()) == 4 * ["∝ N"] + 4 * ["∝ N²"]
    assert page.locator(MARKS).count() == marks, "no series"
    assert "Grey: costs of a sequence ∝ N and ∝ N²." in page.locator("#shown").inner_text()
    received = opening(stored, page.url.partition("#")[2])
    assert received.locator(GUIDES).count() == 8
    page.select_option("[name=show]", value="speedup")
    settled(page)
    assert page.locator(GUIDES).count() == 0
    assert not page.get_by_label("slopes of N and N²").is_visible()


def test_rows_without_a_number_keep_to_the_end(page):
    table = page.locator("table[aria-labelledby=latency_training]")
    button = table.locator("thead th").last.locator("button")
    for _ in range(2):
        button.click()
        cells = table.locator("tbody tr td:last-child")
        known = cells.evaluate_all("cells => cells.map(cell => 'value' in cell.dataset)")
        assert True in known
        assert False in known
        assert known == sorted(known, reverse=True)


@pytest.mark.parametrize("of", ["stored", "many"])
@pytest.mark.parametrize("width", [400, 1000, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_never_scrolls_sideways_and_follows_the_scheme(opening, request, of, width, scheme):
    stored = request.getfixturevalue(of)
    page = opening(stored, viewport={"width": width, "height": 800}, color_scheme=scheme)
    wide = "document.querySelectorAll('html, .wide'), e => e.scrollWidth - e.clientWidth"
    assert page.evaluate(f"Math.max(...Array.from({wide}))") <= 0
    paper = "getComputedStyle(document.body).backgroundColor"
    assert (
        page.evaluate(paper) == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 22, 22)"}[scheme]
    )


def test_without_scripts_figures_and_tables_remain(opening, written):
    page = opening(written, java_script_enabled=False)
    assert page.locator("#charts").is_hidden()
    pictures = page.locator("figure.static img").all()
    assert len(pictures) == 2
    assert all(picture.is_visible() for picture in pictures)
    assert page.locator("table").first.is_visible()


def test_what_screen_readers_need_is_there(page):
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
