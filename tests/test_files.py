"""Files that survive a crash at any instant."""

from __future__ import annotations

import math

import pytest

from grpo_ablate.files import (
    LockHeldError,
    Table,
    append_jsonl,
    lock,
    read_json,
    read_jsonl,
    whole_lines,
    write_atomic,
    write_json,
)


def test_table_round_trips_floats_and_leaves_nan_empty(tmp_path):
    table = Table(tmp_path / "t.csv", ["step", "x"])
    table.append({"step": 1, "x": 0.1 + 0.2})
    table.append({"step": 2, "x": math.nan})
    assert (tmp_path / "t.csv").read_text() == "step,x\n1,0.30000000000000004\n2,\n"


def test_table_refuses_other_columns(tmp_path):
    with pytest.raises(AssertionError):
        Table(tmp_path / "t.csv", ["step"]).append({"step": 1, "y": 2.0})


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "f"
    write_atomic(path, "old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, "new")
    assert path.read_text() == "old"


def test_json(tmp_path):
    assert read_json(tmp_path / "absent.json") == {}
    write_json(tmp_path / "a.json", {"b": "ü", "a": 1})
    assert read_json(tmp_path / "a.json") == {"b": "ü", "a": 1}


def test_jsonl_keeps_one_object_a_line(tmp_path):
    append_jsonl(tmp_path / "s.jsonl", [{"text": "two\nlines"}, {"text": "\u2028"}])
    assert len((tmp_path / "s.jsonl").read_text().split("\n")) == 3


def test_lock_is_exclusive_and_released(tmp_path):
    with lock(tmp_path / "l"), pytest.raises(LockHeldError), lock(tmp_path / "l"):
        pass
    with lock(tmp_path / "l"):
        pass


def test_a_growing_file_is_read_by_whole_lines(tmp_path):
    """A response may hold what Unicode calls a line's end; only a newline is one here."""
    path = tmp_path / "samples.jsonl"
    assert whole_lines(path) == []
    values = [{"text": "one\u2028two\x85three\x0cfour"}, {"text": "\r\n"}]
    append_jsonl(path, values)
    with path.open("a") as file:
        file.write('\n{"text": "cut sh')
    assert len(whole_lines(path)) == 2
    assert read_jsonl(path) == values
