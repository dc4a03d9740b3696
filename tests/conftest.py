"""Shared helpers: the embedded model, a configuration as the command line composes it, a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
from hydra._internal.utils import get_args_parser

from grpo_ablate import compose

# before torch is imported: two threads beside another busy process are far slower than one
os.environ["OMP_NUM_THREADS"] = "1"

ROOT = Path(__file__).parent.parent

SMALL = (
    "--config-dir",
    str(ROOT / "tests/conf"),
    "baseline=small",
    "engine.max_new_tokens=16",
    "evaluation.problems=8",
    "threads=1",
    "log_every=1",
    "eval_every=2",
    "preflight=off",
)
"""A baseline and conditions under which a step takes milliseconds."""


def plan(*argv: str):
    """Return the jobs of a command line, composed but not run."""
    return deepcopy(_planned(argv, os.getcwd()))


@cache
def _planned(argv: tuple[str, ...], cwd: str):
    """Compose once what many tests ask for; a relative output_dir depends on the folder."""
    return compose.plan(get_args_parser().parse_intermixed_args(list(argv)))[0]


def composed(*overrides: str) -> dict:
    """Return the configuration of one run."""
    return plan(*overrides)[0].config


PLAIN = """
import sys
from grpo_ablate.analysis import figures
for name in ("draw", "draw_run", "draw_comparison"):
    setattr(figures, name, lambda *_: ())
from grpo_ablate.__main__ import main
raise SystemExit(main(sys.argv[1:]))
"""
"""The command without its figures, which would take most of a short run's time."""


def shell(*argv: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m grpo_ablate ARGV` in a folder, as a user would."""
    return _ran("-m", "grpo_ablate", *argv, cwd=cwd, **env)


def plain(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Do the same without figures."""
    return _ran("-c", PLAIN, *argv, cwd=cwd)


def _ran(*argv: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *argv],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": paths, **env},
        capture_output=True,
        text=True,
        timeout=600,
    )


def start(root: Path, *argv: str) -> subprocess.Popen[str]:
    """Start the same in the background, its output in one stream."""
    return subprocess.Popen(
        [sys.executable, "-m", "grpo_ablate", *argv],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="session")
def policy():
    """The embedded model in float64."""
    from grpo_ablate.models import causal_lm

    return causal_lm(path="embedded:tiny", base_lr=1e-4, dtype="float64")
