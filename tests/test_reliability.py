"""The fault table holds what it says: each row names a test that exists."""

from __future__ import annotations

import ast
import re

from tests.conftest import ROOT


def test_each_fault_has_its_test():
    text = (ROOT / "docs/reliability.md").read_text()
    rows = text.split("## Faults")[1].split("## Limits")[0].strip().splitlines()[2:]
    assert len(rows) >= 25
    for row in rows:
        file, name = re.search(r"`(tests/\w+\.py)::(\w+)` \|$", row).groups()
        tree = ast.parse((ROOT / file).read_text())
        assert name in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, row
