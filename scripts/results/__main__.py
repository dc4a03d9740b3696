"""docs/results.md from the runs of scripts/reproduce_article.sh: the article's table beside ours.

    python scripts/results keep multirun_outputs/article docs/results   # copy the runs' small files
    python scripts/results docs/results                                 # write page and figures

The second needs nothing but the first's files; the same files give the same bytes. What is said is
decided by numbers: nothing here was written with a result in view.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from page import TITLES, page
from runs import BASE, judged

from grpo_ablate.analysis import figures, publish
from grpo_ablate.files import read_json, write_atomic, write_json

KEPT = ("config.yaml", "manifest.json", "metrics.csv", "eval.csv")
STATUS = ("state", "hash", "source", "device", "step", "steps", "seconds", "reason", "best")


def main(argv: Sequence[str]) -> None:
    if argv[:1] == ["keep"] and len(argv) == 3:
        keep(Path(argv[1]), Path(argv[2]))
    elif len(argv) == 1 and Path(argv[0]).is_dir():
        target = Path(argv[0])
        write_atomic(target.with_suffix(".md"), page(target))
        draw(target)
    else:
        raise SystemExit(__doc__)


def keep(outputs: Path, target: Path) -> None:
    """Copy what the page is made from, of complete runs: no weights, no samples."""
    for source in sorted(outputs.rglob("manifest.json")):
        folder = source.parent
        status = read_json(folder / "status.json")
        if status.get("state") != "complete":
            continue
        copy = target / folder.relative_to(outputs)
        copy.mkdir(parents=True, exist_ok=True)
        for name in KEPT:
            if (folder / name).is_file():
                shutil.copy(folder / name, copy / name)
        write_json(copy / "status.json", {key: status[key] for key in STATUS if key in status})
    for name in ("study.yaml", "probe/probe.json", "order.json", "ORDER.md", "ladder.png"):
        for source in sorted(outputs.rglob(name)):
            copy = target / source.relative_to(outputs)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)


def draw(target: Path) -> None:
    """Write each study's report and figures beside its runs."""
    for name in TITLES:
        if (found := judged(target / name)) is not None:
            publish.write(found.found, target / name / "report")
            (target / name / "report" / "report.json").unlink()
            pictures = target / name / "fig"
            pictures.mkdir(exist_ok=True)
            figures.draw(found.found, found.runs, pictures)
            for path in pictures.iterdir():
                plain = path.stem.removesuffix(f"_{BASE}")
                if path.suffix == ".svg" or plain not in ("forest", "accuracy_steps", "signals"):
                    path.unlink()
                else:
                    path.rename(path.with_name(f"{plain}.png"))


if __name__ == "__main__":
    main(sys.argv[1:])
