"""One run in one process: `python -m grpo_ablate.worker FOLDER`.

With `ranks` above 1 it is rank 0 and starts the others itself (see `ranks.py`).

A process of its own gives each arm × seed a clean slate: random state, GPU memory, engine and
tracker cannot leak from run to run, and a run that dies takes no other with it.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
from pathlib import Path

from grpo_ablate.files import LockHeldError, lock, read_json
from grpo_ablate.inputs import check_unchanged
from grpo_ablate.interrupt import Interrupt
from grpo_ablate.manifest import config_hash, deviated, load_config, source_hash

BUSY = 3
INTERRUPTED = 130
PAUSED = 5
_CODES = {"complete": 0, "interrupted": INTERRUPTED, "paused": PAUSED}


def main(folder: Path) -> int:
    """Train the run frozen in folder/config.yaml.

    Returns:
        0 complete, 1 failed (status.json says why), BUSY where somebody else is at work,
        INTERRUPTED, PAUSED.
    """
    config = load_config(folder)
    try:
        with lock(folder / ".lock", patience=2.0):
            return _run(folder, config)
    except LockHeldError:
        print(f"{folder}: another process is running this arm and seed", file=sys.stderr)
        return BUSY


def _run(folder: Path, config: dict) -> int:  # type: ignore[type-arg]
    interrupt = Interrupt()
    wanted = config_hash(config)  # of the arm as frozen: a deviation does not rename it
    config = deviated(folder, config)
    # torch and transformers take seconds to import: only once the folder is ours
    import torch
    from transformers.utils import logging

    from grpo_ablate import ranks
    from grpo_ablate.records import Records
    from grpo_ablate.train import train
    from grpo_ablate.variants import bind

    logging.disable_progress_bar()
    _prepare(config)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    records = Records(folder, wanted, source_hash(), config["steps"], device=device)
    with bind("tracker", config["tracker"])()(folder):
        try:
            check_unchanged(config, read_json(folder / "manifest.json"))
            with ranks.started(folder, config.get("ranks", 1)):
                state = train(config, records, interrupt)
        except BaseException as error:
            try:
                records.failed(error)
            except OSError as other:  # a full disk or a vanished folder takes no last words either
                print(f"{folder}: the failure could not be noted: {other}", file=sys.stderr)
            raise
    return _CODES[state]


def follow(folder: Path) -> int:
    """Be another rank of the run that rank 0 has locked, until it ends."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # rank 0 says when to stop
    config = load_config(folder)
    wanted = config_hash(config)
    config = deviated(folder, config)
    from grpo_ablate import ranks
    from grpo_ablate.records import Silent
    from grpo_ablate.train import train

    _prepare(config)
    ranks.follow()
    state = train(config, Silent(folder, wanted))
    ranks.barrier()
    return _CODES[state]


def _prepare(config: dict) -> None:  # type: ignore[type-arg]
    """Make torch compute the same each time."""
    import torch

    torch.set_num_threads(config["threads"])
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # determinism on a GPU needs it
    torch.use_deterministic_algorithms(True, warn_only=True)


if __name__ == "__main__":
    work = follow if sys.argv[2:] == ["follow"] else main
    raise SystemExit(work(Path(sys.argv[1])))
