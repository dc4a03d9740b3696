"""Your own questions and answers: a JSON Lines or parquet file, GSM8K's format as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grpo_ablate.knobs import Count, Index
from grpo_ablate.tasks._questions import Questions, fill
from grpo_ablate.types import Problem
from grpo_ablate.verifiers import last_number


class Jsonl(Questions):
    """One question a row, columns by name."""

    def __init__(
        self,
        *,
        path: str,
        question: str,
        answer: str,
        difficulty: str | None,
        gold_after: str | None,
        template: str,
        verifier: str,
        answer_after: str | None,
        held_out: Count,
        held_out_seed: Index,
    ) -> None:
        """Read the file.

        Args:
            path: `.parquet`, or anything else as JSON Lines.
            question: column of the question.
            answer: column of the gold answer.
            difficulty: column of a whole number that accuracy is split by; null for none.
            gold_after: the gold answer is what follows its last occurrence in the column, `####`
                in GSM8K; a text without it counts whole, and so does every one with null.
            template: the prompt, with `{question}` in it.
            verifier: see `verifiers`.
            answer_after: the answer follows its last occurrence; null: the whole response.
            held_out: questions set aside for evaluation.
            held_out_seed: which ones.

        Raises:
            ValueError: with file and line, what is wrong with a row.
        """
        seen: dict[str, tuple[int, str]] = {}
        problems = []
        for line, row in _rows(Path(path).expanduser()):
            where = f"{path}, line {line}"
            asked = _text(row, question, where)
            gold = _text(row, answer, where)
            if gold_after is not None:
                gold = gold.rpartition(gold_after)[2].strip()
            if not gold or (verifier == "number" and last_number(gold) is None):
                raise ValueError(f"{where}: {answer!r} holds no answer, got {row[answer]!r}")
            first, other = seen.setdefault(asked, (line, gold))
            if other != gold:
                raise ValueError(
                    f"{where}: the question of line {first} again with another answer,"
                    f" {gold!r} instead of {other!r}; keep one"
                )
            level = 1 if difficulty is None else _level(row, difficulty, where)
            problems.append(Problem(fill(template, asked), gold, level))
        super().__init__(
            problems,
            source=path,
            rule=verifier,
            answer_after=answer_after,
            held_out=held_out,
            held_out_seed=held_out_seed,
        )


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number, from 1, and row; empty lines are passed over."""
    if not path.is_file():
        raise ValueError(f"task.path={path} is no file; name a JSON Lines or parquet file")
    if path.suffix == ".parquet":
        yield from enumerate(_parquet(path), 1)
        return
    for line, raw in enumerate(path.read_bytes().splitlines(), 1):
        if not raw.strip():
            continue
        try:
            row = json.loads(raw)
        except ValueError as error:  # UnicodeDecodeError is one, too
            raise ValueError(f"{path}, line {line}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {line}: a JSON object is wanted, got {raw[:60]!r}")
        yield line, row


def _parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet

    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"task.path={path} cannot be read as parquet: {error}") from error
    return rows


def _text(row: dict[str, Any], column: str, where: str) -> str:
    """Return a column's text; a number is written out."""
    if column not in row:
        raise ValueError(
            f"{where}: there is no column {column!r}, only {', '.join(map(repr, row))}"
        )
    value = row[column]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{where}: {column!r} must be a text or a number, got {value!r}")
    if not str(value).strip():
        raise ValueError(f"{where}: {column!r} is empty")
    return str(value).strip()


def _level(row: dict[str, Any], column: str, where: str) -> int:
    value = row.get(column)
    if type(value) is not int:
        raise ValueError(f"{where}: {column!r} must be a whole number, got {value!r}")
    return value
