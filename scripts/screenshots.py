"""Pictures of a study's report: `python scripts/screenshots.py FOLDER OUT`.

Desktop, dark, phone and the live page, each as a reader sees it; needs Chromium.
"""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from grpo_ablate import live  # noqa: E402
from scripts.browser import Browser, find  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    path = find()
    if path is None:
        raise SystemExit("no Chromium here: apt-get install chromium")
    args.out.mkdir(parents=True, exist_ok=True)
    report = args.folder / "report" / "report.html"
    if not report.is_file():
        raise SystemExit(f"{report} is not there: python -m grpo_ablate report {args.folder}")
    server = live.server(args.folder, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with Browser(path) as browser:
        browser.size(1400, 900)
        browser.open(f"file://{report.absolute()}")
        browser.picture(args.out / "report.png")
        hover(browser)
        browser.picture(args.out / "report_hover.png")
        browser.dark(True)
        browser.evaluate("document.querySelectorAll('[data-row] button[aria-expanded]')[1].click()")
        browser.evaluate("scrollTo(0, 0)")
        browser.picture(args.out / "report_dark.png")
        browser.dark(False)
        browser.size(390, 844, phone=True)
        browser.open(f"file://{report.absolute()}")
        browser.picture(args.out / "report_phone.png")
        browser.evaluate("document.getElementById('curves-title').scrollIntoView()")
        browser.picture(args.out / "report_phone_curves.png")
        browser.size(1400, 900)
        browser.open(f"http://127.0.0.1:{server.server_port}/")
        browser.picture(args.out / "watch.png")
        if browser.problems:
            raise SystemExit(f"the page complains: {browser.problems}")
    server.shutdown()


def hover(browser: Browser) -> None:
    """Put the mouse on the first panel."""
    browser.evaluate("document.querySelector('#panels figure').scrollIntoView()")
    box = browser.evaluate(
        "(b => [b.left + b.width * .7, b.top + b.height * .4])"
        "(document.querySelector('#panels svg').getBoundingClientRect())"
    )
    browser.move(*box)


if __name__ == "__main__":
    main()
