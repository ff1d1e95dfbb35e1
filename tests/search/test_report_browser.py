"""The report in a real browser: Debian's Chromium, driven by Playwright.

Only where both are there: apt install chromium, pip install playwright (DYNOSIM_CHROMIUM names
another browser). With DYNOSIM_SCREENSHOTS=folder the pages are kept to be looked at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from analytic_evaluator import analytic, screen
from test_report import HOSTILE, about, hostile

from dynosim.search import parse_space, search
from dynosim.search.report.document import document
from dynosim.search.report.page import page as html_page
from dynosim.search.result import SearchResult

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSER = os.environ.get("DYNOSIM_CHROMIUM") or shutil.which("chromium")
if BROWSER is None:
    pytest.skip("no chromium on the path (apt install chromium)", allow_module_level=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        # Containers run as root, where Chromium's own sandbox cannot start.
        started = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def result(small_values: dict[str, Any], folder: Path) -> SearchResult:
    objectives = ["output_tok_s_per_gpu", "ttft"]
    space = parse_space({**small_values, "slos": {"ttft": 400}, "objectives": objectives})
    return search(space, output_dir=folder, workers=1, evaluator=analytic, screen=screen)


class Visit:
    """A page with everything that it asked for and complained of."""

    def __init__(self, browser: Any, file: Path, width: int = 1280, scheme: str = "light") -> None:
        viewport = {"width": width, "height": 900}
        self.page = browser.new_page(viewport=viewport, color_scheme=scheme)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append("dialog"))
        self.page.set_default_timeout(10_000)
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("#chart svg")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def at(self, number: int) -> tuple[float, float]:
        """Where a trial is drawn: its ring is once it is chosen."""
        self.page.evaluate(f"location.hash = '#trial-{number}'")
        self.page.reload()
        self.page.wait_for_selector("#chart svg")
        box = self.page.locator("#chart svg path[stroke='var(--accent)']").bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.fixture
def visit(browser: Any, folder: Path, result: SearchResult) -> Iterator[Visit]:
    opened = Visit(browser, folder / "report.html")
    yield opened
    assert opened.complaints == []
    assert {url.split("#")[0] for url in opened.requests} == {(folder / "report.html").as_uri()}
    opened.page.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (800, "light"), (1280, "dark")])
def test_it_draws_itself_without_a_request_or_a_complaint(
    browser: Any, result: SearchResult, folder: Path, width: int, scheme: str
) -> None:
    opened = Visit(browser, folder / "report.html", width, scheme)
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert opened.page.evaluate(overflow) == 0
    for part in ("#chart", "#legend", "#detail", "#filters", "#table table", "#growth svg",
                 "#importance", "#reasons table", "#basis table"):  # fmt: skip
        assert opened.page.locator(part).is_visible()
    kept = os.environ.get("DYNOSIM_SCREENSHOTS")
    if kept:
        Path(kept).mkdir(parents=True, exist_ok=True)
        opened.page.screenshot(path=f"{kept}/report-{width}-{scheme}.png", full_page=True)
    assert opened.complaints == []
    assert len(opened.requests) == 1


def test_hovering_shows_the_configuration_and_clicking_the_detail(
    visit: Visit, result: SearchResult
) -> None:
    trial = next(t for t in result.frontier if t is not result.knee)
    x, y = visit.at(trial.number)
    visit.page.mouse.move(x + 2, y + 2)
    tip = visit.text("#tip")
    assert "max_num_seqs" in tip
    assert "TTFT" in tip
    visit.page.mouse.click(x + 2, y + 2)
    detail = visit.text("#detail")
    assert f"Trial {trial.number}:" in detail
    assert f"dynosim simulate candidates/{trial.number:03d}.yaml" in detail
    launch = f"dynosim export --to {trial.deployment.backend} candidates/{trial.number:03d}.yaml"
    assert launch in detail
    visit.page.click("#detail details:last-of-type summary")
    assert f"max_num_seqs: {trial.deployment.max_num_seqs}" in visit.text("#detail pre.yaml")


def test_a_dominated_trial_says_by_what(visit: Visit, result: SearchResult) -> None:
    trial = next(t for t in result.trials if t.is_feasible and t not in result.frontier)
    visit.at(trial.number)
    assert "Dominated by trial" in visit.text("#detail")
    visit.page.click("#detail p button")
    assert "on the frontier" in visit.text("#detail")


def test_infeasible_trials_say_why(visit: Visit, result: SearchResult) -> None:
    trial = next(t for t in result.trials if t.reason == "slo")
    visit.at(trial.number)
    assert "infeasible: slo" in visit.text("#detail")
    assert trial.detail in visit.text("#detail")
    assert "✗ p99 TTFT ≤ 400 ms" in visit.text("#detail")


def test_the_limit_is_a_line_where_an_axis_is_limited(visit: Visit) -> None:
    visit.page.get_by_label("Across").select_option("p99_ttft_ms")
    visit.page.get_by_role("button", name="Show them all").click()
    assert visit.page.locator("#chart .limit").count() == 1
    assert visit.page.text_content("#chart .limit-text") == "p99 TTFT ≤ 400 ms"


def test_filters_hide_trials_everywhere(visit: Visit, result: SearchResult) -> None:
    visit.page.get_by_label("Rows").select_option("all")
    rows = visit.page.locator("#table tbody tr")
    assert rows.count() == len(result.trials)
    visit.page.locator("#filters label", has_text="sglang").click()
    assert rows.count() == sum(t.deployment.backend != "sglang" for t in result.trials)
    assert "sglang (0)" in visit.text("#legend")
    visit.page.get_by_role("button", name="Show all again").click()
    assert rows.count() == len(result.trials)


def test_the_table_sorts_both_ways(visit: Visit, result: SearchResult) -> None:
    def shown() -> list[float]:
        cells = visit.page.locator("#table tbody td:nth-child(7)").all_inner_texts()
        return [float(cell.replace(",", "")) for cell in cells]

    heading = visit.page.get_by_role("button", name="Output throughput per GPU")
    heading.click()
    assert shown() == sorted(shown(), reverse=True)
    heading.click()
    assert shown() == sorted(shown())
    assert visit.page.locator("#table th[aria-sort='ascending']").count() == 1


def test_the_keyboard_goes_along_the_frontier_and_zooms(visit: Visit, result: SearchResult) -> None:
    visit.page.focus("#chart svg")
    visit.page.keyboard.press("Home")
    seen = [visit.text("#live")]
    for _ in result.frontier[1:]:
        visit.page.keyboard.press("ArrowRight")
        seen.append(visit.text("#live"))
    assert len(set(seen)) == len(result.frontier)
    ticks = visit.page.text_content("#chart svg")
    visit.page.keyboard.press("+")
    assert visit.page.text_content("#chart svg") != ticks
    visit.page.keyboard.press("0")
    assert visit.page.text_content("#chart svg") == ticks


def test_dragging_zooms_and_a_double_click_shows_everything(visit: Visit) -> None:
    box = visit.page.locator("#chart svg").bounding_box()
    ticks = visit.page.text_content("#chart svg")
    visit.page.mouse.move(box["x"] + 150, box["y"] + 60)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + 350, box["y"] + 200, steps=4)
    visit.page.mouse.up()
    assert visit.page.text_content("#chart svg") != ticks
    visit.page.mouse.dblclick(box["x"] + 200, box["y"] + 100)
    assert visit.page.text_content("#chart svg") == ticks


def test_hostile_names_are_shown_and_not_run(
    browser: Any, result: SearchResult, tmp_path: Path
) -> None:
    attacked, values = hostile(result)
    file = tmp_path / "hostile.html"
    file.write_text(html_page(document(attacked, values, context=f"# {HOSTILE}\n")))
    opened = Visit(browser, file)
    opened.page.get_by_label("Rows").select_option("all")
    assert opened.page.locator("img").count() == 0
    assert "<img src=x onerror=alert(1)>" in opened.text("#title")
    assert opened.complaints == []
    assert len(opened.requests) == 1


def test_without_anything_feasible_it_says_so(
    browser: Any, small_values: dict[str, Any], tmp_path: Path
) -> None:
    space = parse_space({**small_values, "slos": {"ttft": 1}})
    found = search(space, workers=1, evaluator=analytic, screen=screen)
    file = tmp_path / "nothing.html"
    file.write_text(html_page(document(found, about(found))))
    opened = Visit(browser, file)
    assert "nothing to choose from" in opened.text("#answers")
    assert opened.complaints == []
