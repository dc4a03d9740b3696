"""docs/results.md says what the kept runs say: the script writes the same bytes again."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT

KEPT = ROOT / "docs/results"


@pytest.mark.slow
def test_the_page_and_its_reports_come_out_byte_for_byte(tmp_path):
    again = tmp_path / "results"
    shutil.copytree(KEPT, again, ignore=shutil.ignore_patterns("report", "fig"))
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/results", again],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results.md").read_bytes() == (ROOT / "docs/results.md").read_bytes()
    texts = [p.relative_to(KEPT) for p in KEPT.rglob("report/*")]
    assert texts
    for path in texts:
        assert (again / path).read_bytes() == (KEPT / path).read_bytes(), path
    pictures = {p.relative_to(KEPT) for p in KEPT.rglob("fig/*")}
    assert pictures == {p.relative_to(again) for p in again.rglob("fig/*")} != set()
