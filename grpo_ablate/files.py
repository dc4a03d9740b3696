"""Files of a run folder, written so that a crash at any instant leaves them readable."""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write_atomic(path: Path, text: str) -> None:
    """Replace a file's content: readers see the old text or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def to_disk(path: Path) -> None:
    """See to it that the disk has a file, or a folder's list of names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, keys in order of insertion."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object, {} where the file does not exist (yet)."""
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return value


class Table:
    """A CSV file that grows a row at a time, each row on disk before the next step begins.

    Numbers are written with repr, which reads back to the same float; NaN is an empty cell.
    """

    def __init__(self, path: Path, columns: Sequence[str], *, anew: bool = True) -> None:
        """Start the file anew with its header, or go on with the one that is there."""
        self.path, self.columns = path, list(columns)
        if anew:
            write_atomic(path, ",".join(self.columns) + "\n")

    def append(self, row: Mapping[str, float]) -> None:
        """Add one row; its keys must be exactly the columns."""
        assert row.keys() == set(self.columns), row.keys() ^ set(self.columns)
        _append(self.path, ",".join(_cell(row[name]) for name in self.columns))


def append_jsonl(path: Path, values: Iterable[Mapping[str, Any]]) -> None:
    """Add one JSON object a line."""
    _append(path, "\n".join(json.dumps(value, ensure_ascii=False) for value in values))


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a growing file, none where it does not exist (yet).

    One cut short by a crash is left out, and so are empty ones. A line ends with a newline and
    nothing else: a response may hold any other character that Unicode calls a line's end.
    """
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="\n") as file:
        return [line for line in file if line.endswith("\n") and line.strip()]


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the values of a file of JSON lines; see `whole_lines`."""
    return [json.loads(line) for line in whole_lines(path)]


def cut(path: Path, length: int) -> None:
    """Cut a file to a length that it had before, and see to it that the disk knows.

    Raises:
        OSError: the file is gone, or shorter than that: bytes once written are lost.
    """
    with path.open("r+b") as file:
        if file.seek(0, os.SEEK_END) < length:
            raise OSError(f"{path} is shorter than its checkpoint says; remove the run's folder")
        file.truncate(length)
        os.fsync(file.fileno())


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def _cell(value: float) -> str:
    return "" if isinstance(value, float) and math.isnan(value) else repr(value)


class LockHeldError(RuntimeError):
    """Another process holds the lock."""


@contextmanager
def lock(path: Path, patience: float = 0.0) -> Iterator[int]:
    """Hold a file lock; the kernel releases it when the holder dies, however it dies.

    Args:
        path: a file to lock, made if need be.
        patience: seconds to go on trying; `is_locked` of somebody else holds it for an instant.

    Yields:
        The file descriptor: a child that inherits it holds the lock as well.

    Raises:
        LockHeldError: another process holds it.
    """
    with path.open("a") as file:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise LockHeldError(str(path)) from None
                time.sleep(0.05)
        yield file.fileno()


def is_locked(path: Path) -> bool:
    """Tell whether some process holds a lock; True where that cannot be told."""
    if not path.exists():
        return False
    try:
        with lock(path):
            return False
    except (LockHeldError, OSError):
        return True
