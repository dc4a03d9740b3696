"""`python -m grpo_ablate dashboard [FOLDER]`: lay out the W&B workspace of a study."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grpo_ablate import liveness, publish


def main(argv: list[str]) -> int:
    """Save the workspace on the server; without a key, or with --json, as a file.

    Returns:
        0, or 2 for bad input, 3 where the server did not take it.
    """
    parser = argparse.ArgumentParser(prog="python -m grpo_ablate dashboard")
    parser.add_argument("folder", nargs="?", default="multirun_outputs", type=Path)
    parser.add_argument("--json", action="store_true", help="write report/workspace.json only")
    args = parser.parse_args(argv)
    folders = liveness.run_folders(args.folder)
    if not folders:
        problem = f"no runs under {args.folder}; name the output_dir of a study"
    elif not (problem := publish.problem()):
        project = publish.identity(folders[0])["project"]
        return _save(args.folder / "report" / "workspace.json", project, offline=args.json)
    print(f"grpo_ablate: {problem}", file=sys.stderr)
    return 2


def _save(path: Path, project: str, *, offline: bool) -> int:
    import wandb

    from grpo_ablate import workspace

    why = "" if offline else publish.no_key()
    if offline or why:
        workspace.save_json(workspace.build("offline", project), path)
        print(f"{why}: written to {path}" if why else path)
        return 0
    try:
        built = workspace.build(wandb.Api().default_entity, project)
        built.save()
    except Exception as error:  # a server and an SDK of somebody else
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"grpo_ablate: not saved: {reason[:300]}", file=sys.stderr)
        return 3
    print(built.url)
    return 0
