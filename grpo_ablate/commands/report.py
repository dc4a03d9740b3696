"""`python -m grpo_ablate report [FOLDER]`: the table and the figures of a folder of runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from grpo_ablate import liveness


def main(argv: list[str]) -> int:
    """Show a folder of runs.

    Returns:
        0 all complete, 2 no runs there, 3 some failed or are missing.
    """
    parser = argparse.ArgumentParser(prog="python -m grpo_ablate report")
    parser.add_argument("folder", nargs="?", default="multirun_outputs", type=Path)
    folder = parser.parse_args(argv).folder
    found = liveness.run_folders(folder)
    if not found:
        print(f"grpo_ablate: no runs under {folder}; name the output_dir of a study")
        return 2
    return show(folder, found)


def show(output_dir: Path, folders: Sequence[Path]) -> int:
    """Print a table of runs and draw their figures.

    Args:
        output_dir: of the study; the comparison takes in its other runs too.
        folders: the runs asked for.

    Returns:
        0 all complete, 3 otherwise.
    """
    from grpo_ablate.analysis import figures, html, load, table

    there = [folder for folder in folders if (folder / "manifest.json").is_file()]
    for folder in sorted({*folders} - {*there}):
        print(f"missing: {folder}: the run's folder is gone; the same command runs it again")
    runs = [load.read_run(folder) for folder in there]
    print(table.render(runs))
    for run in runs:
        if not run.metrics.empty:
            figures.draw_run(run)
    everything = load.read_study(output_dir)
    for path in figures.draw_comparison(everything, output_dir / "report" / "fig"):
        print(f"figure: {path}")
    print(f"page: {html.write(output_dir)}")
    for line in table.advice(runs, everything):
        print(line)
    whole = len(runs) == len(folders) and all(run.state == "complete" for run in runs)
    return 0 if whole else 3
