"""What must start without torch and wandb: the door, the checks, the reports."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

BLOCK = (
    "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None;"
    " sys.modules['wandb'] = None; "
)


@pytest.mark.parametrize(
    "code",
    [
        "import grpo_ablate.__main__ as m; raise SystemExit(m.main(['--help']))",
        "import grpo_ablate.commands.train, grpo_ablate.runs, grpo_ablate.progress",
        "from grpo_ablate.analysis import diagnose, figures, html, load, report, table",
        "from grpo_ablate.commands import dashboard, push, watch; import grpo_ablate.track",
        "import grpo_ablate.config as c, tests.conftest as t; c.check(t.composed())",
    ],
    ids=["help", "train", "analysis", "W&B and live", "config check"],
)
def test_without_torch(code):
    done = subprocess.run(
        [sys.executable, "-c", BLOCK + code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
