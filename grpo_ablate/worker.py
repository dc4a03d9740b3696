"""One run in one process: `python -m grpo_ablate.worker FOLDER`.

A process of its own gives each arm × seed a clean slate: random state, GPU memory, engine and
tracker cannot leak from run to run, and a run that dies takes no other with it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from grpo_ablate.files import LockHeldError, lock
from grpo_ablate.manifest import config_hash, load_config


def main(folder: Path) -> int:
    """Train the run frozen in folder/config.yaml.

    Returns:
        0 complete, 1 failed (status.json says why), 3 somebody else is at work there.
    """
    config = load_config(folder)
    try:
        with lock(folder / ".lock"):
            return _run(folder, config)
    except LockHeldError:
        print(f"{folder}: another process is running this arm and seed", file=sys.stderr)
        return 3


def _run(folder: Path, config: dict) -> int:  # type: ignore[type-arg]
    # torch and transformers take seconds to import: only once the folder is ours
    import torch
    from transformers.utils import logging

    from grpo_ablate.records import Records
    from grpo_ablate.train import train

    logging.disable_progress_bar()
    torch.set_num_threads(config["threads"])
    torch.use_deterministic_algorithms(True, warn_only=True)
    records = Records(folder, config_hash(config), config["steps"])
    try:
        train(config, records)
    except BaseException as error:
        records.failed(error)
        raise
    records.complete()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
