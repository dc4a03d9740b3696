"""`python -m grpo_ablate diagnose RUN|FOLDER|FILE...`: what is wrong, and what to try."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from grpo_ablate.variants import ConfigError

STRICT = 6
"""Exit code of --strict where there is a fault."""


def main(argv: list[str]) -> int:
    """Ask every log the rules; advice never fails a build, --strict does.

    Returns:
        0, or 2 for bad input, or 6 with --strict where a fault was found.
    """
    from grpo_ablate.analysis import diagnose

    parser = argparse.ArgumentParser(prog="python -m grpo_ablate diagnose")
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        default=[Path("multirun_outputs")],
        help="run folders, folders of runs, trainer_state.json, CSV or JSON histories",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--strict", action="store_true", help=f"exit {STRICT} at a fault or caution"
    )
    args = parser.parse_args(argv)
    try:
        reports = diagnose.of_paths(args.paths)
    except ConfigError as error:
        print(f"grpo_ablate: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps([diagnose.plain(report) for report in reports], indent=2))
    else:
        print("\n\n".join(diagnose.text(report) for report in reports))
    serious = any(found.rule.level == "fault" for report in reports for found in report.findings)
    return STRICT if args.strict and serious else 0
