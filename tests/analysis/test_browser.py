"""report.html and the live page in a real browser: Chromium, headless, through its own pipe."""

from __future__ import annotations

import os
import re
import threading
import time

import pytest

from grpo_ablate import live
from grpo_ablate.analysis import contents, html
from scripts.browser import Browser, find
from tests.made_up import EVIL, report, study

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    path = find()
    if path is None:
        # the whole check sets this: there a missing browser must not pass for a tested page
        assert not os.environ.get("GRPO_ABLATE_BROWSER"), "no Chromium, and one is required"
        pytest.skip("no Chromium here: apt-get install chromium")
    with Browser(path) as found:
        yield found


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    study(folder, arms=4, seeds=2)
    path = folder / "report.html"
    path.write_text(html.page(contents.gather(folder, report())), encoding="utf-8")
    return path


@pytest.fixture
def page(browser, page_file):
    browser.problems.clear()
    browser.requests.clear()
    browser.size(1280, 900)
    browser.open(f"file://{page_file}")
    yield browser
    assert browser.problems == []
    assert browser.requests == [f"file://{page_file}"], "the page asked for something"


def count(page, selector):
    return page.evaluate(f"document.querySelectorAll({selector!r}).length")


def test_it_draws_every_panel(page):
    assert count(page, "#panels svg") == len(contents.PANELS)
    held_out = "figure[data-panel^='held-out']"
    assert count(page, f"{held_out} [data-curve]") == 4
    assert count(page, f"{held_out} polyline") == 4 + 8, "means and seeds"


def test_an_arm_is_hidden_and_shown_again(page):
    for pressed, curves in (("false", 3), ("true", 4)):
        page.evaluate("document.querySelector('#legend [data-arm=arm_1]').click()")
        buttons = "[...document.querySelectorAll('[data-arm=arm_1]')]"
        states = page.evaluate(f"{buttons}.map(b => b.getAttribute('aria-pressed'))")
        assert set(states) == {pressed}
        assert count(page, "figure[data-panel^='held-out'] [data-curve]") == curves


def test_the_table_sorts_both_ways_by_keyboard(page):
    rows = "[...document.querySelectorAll('[data-row]')].map(r => r.dataset.row)"
    column = "document.querySelector('[data-column=delta]')"
    page.evaluate(f"{column}.focus()")
    page.press("Enter")
    falling = page.evaluate(rows)
    assert page.evaluate(f"{column}.closest('th').getAttribute('aria-sort')") == "descending"
    page.press("Enter")
    assert falling == ["arm_1", "arm_3", "baseline", "arm_2"], "those without a number last"
    assert page.evaluate(rows) == ["arm_3", "arm_1", "baseline", "arm_2"]


def test_the_forest_has_a_bar_for_each_estimate(page):
    assert page.evaluate("document.querySelector('#forest svg').getAttribute('aria-label')") == (
        "arm_1: 3.1, from 1.2 to 5.0; arm_3: -0.2, from -1.1 to 0.9"
    )
    assert count(page, "#forest circle") == 2 + 4, "means and seeds"


def test_values_are_read_with_mouse_and_arrow_keys(page):
    page.evaluate("document.querySelector('#panels svg').focus()")
    tip = "document.getElementById('tip').innerText"
    page.press("ArrowLeft")
    assert page.evaluate(tip).startswith("step 300"), "from the end"
    page.press("ArrowLeft")
    assert page.evaluate(tip).startswith("step 275")
    assert re.search(r"arm_1\s+0\.\d+ \[0\.\d+, 0\.\d+\]", page.evaluate(tip))
    page.press("Escape")
    assert page.evaluate("document.getElementById('tip').hidden")
    page.evaluate("document.querySelector('#panels').scrollIntoView()")
    box = page.evaluate(
        "(b => [b.left + b.width / 2, b.top + b.height / 2])"
        "(document.querySelector('#panels svg').getBoundingClientRect())"
    )
    page.move(*box)
    assert page.evaluate(tip).startswith("step 1")


def test_every_control_is_reached_by_keyboard(page):
    wanted = count(page, "button, select, input, svg[tabindex]")
    seen = set()
    for _ in range(wanted + 2):
        page.press("Tab")
        seen.add(
            page.evaluate(
                "[...document.querySelectorAll('button, select, input, svg[tabindex]')]"
                ".indexOf(document.activeElement)"
            )
        )
    assert seen - {-1} == set(range(wanted))


def test_curves_over_tokens(page):
    page.evaluate(
        "(a => { a.value = 'tokens'; a.dispatchEvent(new Event('change')) })"
        "(document.getElementById('axis'))"
    )
    assert "k" in page.evaluate("document.querySelector('#panels svg').textContent")


def test_alarms_are_marked_where_their_signal_is_drawn(page):
    assert count(page, "figure[data-panel^='entropy'] [data-alarm=arm_1]") == 2
    assert count(page, "[data-alarm]") == 4
    page.evaluate("document.getElementById('alarms').click()")
    assert count(page, "[data-alarm]") == 0


def test_dark_when_the_system_is_and_when_asked(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.dark(True)
    dark = page.evaluate(ground)
    assert dark != light == "rgb(255, 255, 255)"
    page.evaluate("document.getElementById('theme').click()")
    assert page.evaluate(ground) == light, "light asked for, on a dark system"
    page.dark(False)
    page.evaluate("document.getElementById('theme').click()")
    assert page.evaluate(ground) == dark, "dark asked for, on a light system"


def test_a_phone_needs_no_sideways_scrolling(page):
    page.size(390, 844, phone=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_what_a_model_wrote_is_text(page):
    shown = page.evaluate("document.body.innerText")
    assert "<script>alert(1)</script>\\x1b[31mred\\x07 \\u202etfel" in shown
    assert EVIL not in shown
    assert count(page, "img") == 0
    assert count(page, "script") == 2


def test_what_an_arm_changes_is_shown(page):
    page.evaluate("document.querySelector('[data-row=arm_1] button[aria-expanded]').click()")
    shown = page.evaluate("document.querySelector('tr.detail').innerText")
    assert re.search(r"clip\.eps_high\s+0\.2\s+→\s+0\.21", shown)


def test_the_live_page_follows_the_runs(browser, tmp_path):
    study(tmp_path, arms=1, seeds=1)
    server = live.server(tmp_path, 0)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        browser.problems.clear()
        browser.open(f"http://127.0.0.1:{server.server_port}/")
        assert count(browser, "[data-row]") == 1
        study_rest = tmp_path / "rest"
        study(study_rest, arms=2, seeds=1)
        (study_rest / "arm_1").rename(tmp_path / "arm_1")
        end = time.monotonic() + 30
        while count(browser, "[data-row]") < 2 and time.monotonic() < end:
            time.sleep(0.1)
        assert count(browser, "[data-row]") == 2
        assert browser.problems == []
    finally:
        server.shutdown()
        server.server_close()
