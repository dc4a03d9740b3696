"""Where a run is shown besides its own files (Hydra group `tracker`); torch-free.

The run's files are the truth. W&B is fed by a process of its own that reads them as they grow
(`publish.py`), so that nothing that befalls it (no network, a server that hangs, a broken
package) can slow a run down, stop it or lose a number of it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from grpo_ablate.files import read_json, write_json
from grpo_ablate.knobs import Positive

NOTE = "track.json"
"""In a run's folder: what became of its tracking."""

Tracker = Callable[[Path], AbstractContextManager[None]]
"""Run folder → a block during which the run is shown, and after which it is left alone."""


def none() -> Tracker:
    """Show the run nowhere else."""
    return lambda folder: nullcontext()


def wandb(
    *, mode: Literal["auto", "offline"], init_timeout: Positive, finish_timeout: Positive
) -> Tracker:
    """Show the run on Weights & Biases.

    Args:
        mode: auto is online with an API key and offline without; never a question.
        init_timeout: seconds for the server's first answer, after which the run is kept offline.
        finish_timeout: seconds the run waits at its end; then W&B is left, `push` sends the rest.
    """
    return partial(_follow, mode=mode, init_timeout=init_timeout, finish_timeout=finish_timeout)


def later(folder: Path) -> str:
    """Return the command that sends what is missing."""
    return f"python -m grpo_ablate push {folder.parent.parent}"


def note(folder: Path, **facts: Any) -> None:
    """Add to what is known about a run's tracking."""
    write_json(folder / NOTE, read_json(folder / NOTE) | facts)


def lines(folders: Iterable[Path]) -> list[str]:
    """Return what a person at the end of a sweep should know about its tracking, a line a kind."""
    kinds: dict[str, int] = {}
    for folder in folders:
        found = read_json(folder / NOTE)
        why = found.get("missing") or found.get("why")
        if why:
            text = f"not on W&B: {why}; later: {later(folder)}"
        elif found.get("url"):
            text = f"on W&B: {found['url'].rsplit('/runs/', 1)[0]}"
        else:
            continue
        kinds[text] = kinds.get(text, 0) + 1
    return [f"{count} run{'s' * (count > 1)} {text}" for text, count in kinds.items()]


@contextmanager
def _follow(folder: Path, mode: str, init_timeout: float, finish_timeout: float) -> Iterator[None]:
    child = _start(folder, [str(folder), mode, str(init_timeout), str(finish_timeout)])
    try:
        yield
    finally:
        if child:
            _dismiss(folder, child, finish_timeout)


def _start(folder: Path, arguments: list[str]) -> subprocess.Popen[bytes] | None:
    """Start the publisher; None where that cannot be done."""
    if find_spec("wandb") is None:
        _tell(folder, "wandb is not installed (pip install 'grpo-ablate[wandb]')")
        return None
    try:
        (folder / NOTE).unlink(missing_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", "grpo_ablate.publish", *arguments],
            stdin=subprocess.PIPE,  # closed when this process ends, however it ends
            start_new_session=True,  # a Ctrl-C is for training; this one ends when training does
        )
    except OSError as error:
        _tell(folder, f"the publisher could not be started ({error})")
        return None


def _dismiss(folder: Path, child: subprocess.Popen[bytes], patience: float) -> None:
    """Let the publisher finish, but not for long."""
    assert child.stdin is not None
    child.stdin.close()
    try:
        if child.wait(patience):
            error = read_json(folder / NOTE).get("error", f"exit code {child.returncode}")
            _tell(folder, f"W&B failed ({error})")
    except subprocess.TimeoutExpired:
        _tell(folder, f"W&B did not take everything within {patience:g} s")
    finally:
        if child.poll() is None:
            child.kill()  # W&B's own process sees that and goes
            child.wait()


def _tell(folder: Path, why: str) -> None:
    """Warn once; the run goes on."""
    print(f"warning: {why}; nothing of the run is lost, later: {later(folder)}", flush=True)
    with suppress(OSError):  # a full disk or a vanished folder is training's to notice
        note(folder, missing=why)
