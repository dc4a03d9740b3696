"""From files to logs: our run folders, TRL's trainer_state.json, verl's and W&B's CSV and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from grpo_ablate import liveness
from grpo_ablate.analysis.diagnosis.aliases import ALIASES, STEPS, Alias, find
from grpo_ablate.analysis.diagnosis.log import Log
from grpo_ablate.analysis.load import Run, read_run
from grpo_ablate.manifest import load_config
from grpo_ablate.variants import ConfigError

_READABLE = "a run's folder, a folder of runs, a trainer_state.json, or a history as CSV or JSON"


def read(paths: Sequence[Path]) -> tuple[list[Run], list[Log]]:
    """Return our own runs and others' logs at some paths.

    W&B exports one chart a file, with a column for each run: charts of one run are put together.

    Args:
        paths: run folders, folders of runs, and files: CSV, JSON, or JSON a line.

    Returns:
        Runs of ours, and one log for each run of another trainer.

    Raises:
        ConfigError: what cannot be read, and what could be.
    """
    runs: list[Run] = []
    tables: dict[str, list[pd.DataFrame]] = {}
    for path in paths:
        if path.is_dir():
            runs += _folder(path, tables)
        elif path.name == "metrics.csv" and (path.parent / "manifest.json").is_file():
            runs.append(read_run(path.parent))
        else:
            _file(path, tables)
    return runs, [of_tables(*item) for item in tables.items()]


def of_run(run: Run) -> Log:
    """Return a run of ours as a log; one without a row yet has no signals."""
    frames = [frame for frame in (run.metrics, run.evals) if not frame.empty]
    signals = {str(name): _clean(frame[name]) for frame in frames for name in frame}
    return Log(
        name=f"{run.arm} seed={run.seed}",
        trainer="grpo_ablate",
        signals={name: values for name, values in signals.items() if len(values)},
        config=load_config(run.folder) if (run.folder / "config.yaml").is_file() else {},
        arm=run.arm,
        seed=run.seed,
        state=run.state,
    )


def of_tables(name: str, tables: Sequence[pd.DataFrame]) -> Log:
    """Return another trainer's tables as a log.

    Raises:
        ConfigError: no column means anything here.
    """
    # a step may have several rows (training, evaluation): each column's last value counts
    table = pd.concat(tables).groupby(level=0).last().sort_index()
    meanings = {str(column): find(str(column)) for column in table}
    used = [alias for alias in meanings.values() if alias and alias.ours]
    if not used:
        raise ConfigError(f"{name} has no column that is known here; see docs/diagnose.md")
    signals = {}
    for ours in sorted({alias.ours for alias in used if alias.ours}):
        values = _clean(_best(table, meanings, ours))
        if len(values):
            signals[ours] = values
    (trainer, _), *_ = Counter(alias.trainer for alias in used).most_common()
    unknown = tuple(column for column, alias in meanings.items() if alias is None)
    return Log(name, trainer, signals, unknown)


def _best(table: pd.DataFrame, meanings: dict[str, Alias | None], ours: str) -> pd.Series[float]:
    """Return the columns that the table's first alias for a signal names, averaged."""
    named = [alias for alias in meanings.values() if alias and alias.ours == ours]
    order = [*ALIASES, *named]
    chosen = min(named, key=order.index)
    columns = [column for column, alias in meanings.items() if alias == chosen]
    mean: pd.Series[float] = table[columns].apply(pd.to_numeric, errors="coerce").mean(axis=1)
    return mean


def _clean(values: pd.Series[Any]) -> pd.Series[float]:
    """Return the finite numbers of a column, by whole steps."""
    numbers = pd.to_numeric(values, errors="coerce").replace([np.inf, -np.inf], np.nan).dropna()
    numbers.index = numbers.index.astype(int)
    return numbers[~numbers.index.duplicated(keep="last")].sort_index().astype(float)


def _folder(path: Path, tables: dict[str, list[pd.DataFrame]]) -> list[Run]:
    if (path / "trainer_state.json").is_file():
        _file(path / "trainer_state.json", tables)
        return []
    folders = [path] if (path / "manifest.json").is_file() else liveness.run_folders(path)
    folders = folders or sorted(file.parent for file in path.glob("seed=*/manifest.json"))
    if not folders:
        raise ConfigError(f"{path} holds no runs; name {_READABLE}")
    return [read_run(folder) for folder in folders]


def _file(path: Path, tables: dict[str, list[pd.DataFrame]]) -> None:
    if not path.is_file():
        raise ConfigError(f"{path} does not exist; name {_READABLE}")
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = _json(text) if path.suffix in (".json", ".jsonl") else _csv(text)
    except (ValueError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ConfigError(f"{path} is no history: {error}; name {_READABLE}") from None
    step = next((name for name in STEPS if name in rows), None)
    if step is None:
        raise ConfigError(f"{path} has no column of steps ({', '.join(STEPS)})")
    rows = rows[pd.to_numeric(rows[step], errors="coerce").notna()]
    if rows.empty:
        raise ConfigError(f"{path} holds no row with a step yet")
    rows.index = pd.to_numeric(rows[step]).astype(int)
    rows = rows.drop(columns=[name for name in STEPS if name in rows])
    for run, table in _by_run(str(path), rows).items():
        tables.setdefault(run, []).append(table)


def _by_run(path: str, rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Split a W&B chart into its runs: columns `RUN - METRIC`, with `__MIN` and `__MAX` beside."""
    columns = [str(column) for column in rows if not str(column).endswith(("__MIN", "__MAX"))]
    runs: dict[str, dict[str, str]] = {}
    for column in columns:
        run, dash, metric = column.rpartition(" - ")
        runs.setdefault(run if dash else path, {})[column] = metric
    return {run: rows[list(names)].rename(columns=names) for run, names in runs.items()}


def _csv(text: str) -> pd.DataFrame:
    return pd.read_csv(StringIO(text), low_memory=False)


def _json(text: str) -> pd.DataFrame:
    """Return the rows of a JSON history.

    A list of objects, one object a line, TRL's `log_history`, pandas' columns of cells, and verl's
    lines `{"step": 1, "data": {...}}`.
    """
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(found, dict):
        found = found.get("log_history", found)
    if isinstance(found, dict) and all(isinstance(cells, dict) for cells in found.values()):
        return pd.DataFrame(found)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise ValueError("neither a list of rows nor columns of cells")
    inner = [row["data"] if isinstance(row.get("data"), dict) else {} for row in found]
    return pd.DataFrame([{**row, **data} for row, data in zip(found, inner, strict=True)])
