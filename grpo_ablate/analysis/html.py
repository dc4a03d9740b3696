"""report.html: one file that needs no network, from the runs' own files.

All text goes into the page as JSON, and the page's script turns it into text nodes: nothing that
a model or a user wrote is ever markup. The same files give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from grpo_ablate.analysis.contents import gather
from grpo_ablate.analysis.load import Run
from grpo_ablate.files import write_atomic

_ASSETS = ("page.html", "page.css", "page.js")


def write(
    output_dir: Path,
    report: Mapping[str, Any] | None = None,
    runs: Sequence[Run] | None = None,
) -> Path:
    """Write report/report.html.

    Args:
        output_dir: of the study.
        report: see `contents.gather`.
        runs: see `contents.gather`.

    Returns:
        The file.
    """
    path = output_dir / "report" / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, page(gather(output_dir, report, runs)))
    return path


def page(data: Mapping[str, Any], *, live: bool = False) -> str:
    """Return the whole page.

    Args:
        data: as `contents.gather` returns it.
        live: it asks its server for `data.json` now and then.
    """
    assets = resources.files("grpo_ablate") / "assets" / "report"
    parts = {name: (assets / name).read_text(encoding="utf-8") for name in _ASSETS}
    return Template(parts["page.html"]).substitute(
        connect="'self'" if live else "'none'",
        title="ablation report",
        style=parts["page.css"],
        script=parts["page.js"],
        data=embedded({**data, "live": live}),
    )


def embedded(data: Mapping[str, Any]) -> str:
    """Return JSON that can stand inside a script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
