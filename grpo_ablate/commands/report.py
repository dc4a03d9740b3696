"""`python -m grpo_ablate report [FOLDER]`: verdicts, tables and figures of a folder of runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from grpo_ablate import liveness, study
from grpo_ablate.variants import ConfigError


def main(argv: list[str]) -> int:
    """Show a folder of runs.

    Returns:
        0 all complete, 2 no runs there, 3 some failed or are missing, 4 an arm cannot be compared.
    """
    parser = argparse.ArgumentParser(prog="python -m grpo_ablate report")
    parser.add_argument("folder", nargs="?", default="multirun_outputs", type=Path)
    folder = parser.parse_args(argv).folder
    found = liveness.run_folders(folder)
    if not found:
        print(f"grpo_ablate: no runs under {folder}; name the output_dir of a study")
        return 2
    try:
        return show(folder, found)
    except ConfigError as error:
        print(f"grpo_ablate: {error}", file=sys.stderr)
        return 2


def show(output_dir: Path, folders: Sequence[Path]) -> int:
    """Print a table of runs, judge the whole folder, write its report and draw its figures.

    Args:
        output_dir: of the study; the comparison takes in its other runs too.
        folders: the runs asked for.

    Returns:
        0 all complete, 3 otherwise; 4 where one of these arms cannot be compared.
    """
    from grpo_ablate.analysis import figures, html, load, publish, report, table

    there = [folder for folder in folders if (folder / "manifest.json").is_file()]
    for folder in sorted({*folders} - {*there}):
        print(f"missing: {folder}: the run's folder is gone; the same command runs it again")
    runs = [load.read_run(folder) for folder in there]
    print(table.render(runs))
    for run in runs:
        if not run.metrics.empty:
            figures.draw_run(run)
    everything = load.read_study(output_dir)
    found = report.build(everything, study.read(output_dir))
    asked = {run.arm for run in runs}
    for row in found["arms"]:
        if row["arm"] in asked or row["baseline"] in asked:
            print(row["sentence"])
    for row in found["interactions"]:
        print(row["sentence"])
    publish.write(found, output_dir / "report")
    print(f"report: {output_dir / 'report' / 'REPORT.md'}")
    pictures = output_dir / "report" / "fig"
    for path in (
        *figures.draw_comparison(everything, pictures),
        *figures.draw(found, everything, pictures),
    ):
        print(f"figure: {path}")
    print(f"page: {html.write(output_dir, found, everything)}")
    for line in table.advice(runs, everything):
        print(line)
    if any(row["verdict"] == "invalid" and row["arm"] in asked for row in found["arms"]):
        return 4
    whole = len(runs) == len(folders) and all(run.state == "complete" for run in runs)
    return 0 if whole else 3
