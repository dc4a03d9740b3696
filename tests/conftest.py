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


def shell(*argv: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m grpo_ablate ARGV` in a folder, as a user would."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "grpo_ablate", *argv],
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
