"""Run every benchmark and write its table into docs/benchmarks.md and docs/scaling.md.

python scripts/bench/all.py [--only step-ragged report ...]

A table stands between `<!-- bench: NAME -->` and `<!-- end -->`; the prose around it stays. What
cannot run here (an extra is missing) keeps its table, and is named at the end. Needs the extras
`bench` and `parallel`, and about half an hour of an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGES = [ROOT / "docs/benchmarks.md", ROOT / "docs/scaling.md"]
MARKED = r"(<!-- bench: {} -->\n).*?(<!-- end -->)"

BENCHES = {
    "step-ragged": ["bench_step.py", "--lengths", "ragged"],
    "step-equal": ["bench_step.py", "--lengths", "equal"],
    "logprob": ["bench_logprob.py"],
    "logprob-entropy": ["bench_logprob.py", "--entropy"],
    "start": ["bench_start.py"],
    "metrics": ["bench_metrics.py"],
    "report": ["bench_report.py"],
    "doublings": ["bench_scale.py"],
    "against-measured": ["scaling_table.py"],
    "parallel": ["parallel.py"],
}
"""Name → script and arguments; in this order: scaling_table.py reads what bench_scale.py wrote."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=list(BENCHES))
    names = parser.parse_args().only
    fill("machine", machine())
    left = []
    for name in names:
        began = time.perf_counter()
        done = run(BENCHES[name])
        if done.returncode:
            left.append(f"{name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
            continue
        fill(name, shown(done.stdout))
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    for line in left:
        print(f"not run, its table stays: {line}", file=sys.stderr)
    return 1 if left else 0


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a benchmark as it is run by hand."""
    return subprocess.run(
        [sys.executable, str(HERE / argv[0]), *argv[1:]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def shown(output: str) -> str:
    """Return what goes on the page: the table, or else the lines as they are."""
    lines = [line for line in output.splitlines() if not line.startswith(("round ", "{", "alarm "))]
    table = [line for line in lines if line.startswith("|")]
    if len(table) >= len(lines) / 2:
        return "\n".join(table)
    return "\n".join(["```", *lines, "```"])


def fill(name: str, text: str) -> None:
    """Put a text where a page has a place for it.

    Raises:
        ValueError: no page has.
    """
    found = 0
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        pattern = re.compile(MARKED.format(re.escape(name)), re.DOTALL)
        after, count = pattern.subn(lambda m: f"{m[1]}{text}\n{m[2]}", before)
        found += count
        page.write_text(after, encoding="utf-8")
    if not found:
        raise ValueError(f"no <!-- bench: {name} --> in {', '.join(map(str, PAGES))}")


def machine() -> str:
    """Return what the figures are of."""
    chip = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = []
    for package in ("torch", "transformers", "trl"):
        try:
            packages.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            packages.append(f"no {package}")
    return (
        f"{time.strftime('%Y-%m-%d')}: {chip[1] if chip else platform.processor()},"
        f" {os.cpu_count()} cores, {memory:.0f} GiB, load {os.getloadavg()[0]:.1f};"
        f" Python {platform.python_version()}, {', '.join(packages)}; one thread."
    )


if __name__ == "__main__":
    raise SystemExit(main())
