"""Tasks of a finite list of questions: files of the user's, and reasoning-gym."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

from grpo_ablate.tasks.jsonl import Jsonl
from grpo_ablate.tasks.reasoning_gym import ReasoningGym

KNOBS = {
    "question": "question",
    "answer": "answer",
    "difficulty": None,
    "gold_after": "####",
    "template": "{question}",
    "verifier": "number",
    "answer_after": None,
    "held_out": 2,
    "held_out_seed": 1,
}
GSM8K = [
    {"question": f"{i} clips and {i} more?", "answer": f"So {i}+{i}.\n#### {2 * i:,}"}
    for i in (1, 2, 3, 4, 700)
]
needs_gym = pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None, reason="needs the extra `tasks`"
)


def load(tmp_path, rows, **changes):
    path = tmp_path / "q.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return Jsonl(path=str(path), **(KNOBS | changes))


def everything(task):
    return sorted(task.held_out() + task.training(), key=lambda problem: int(problem.prompt[0]))


def test_gsm8k_is_read_as_it_is(tmp_path):
    task = load(tmp_path, GSM8K)
    assert [p.answer for p in everything(task)] == ["2", "4", "6", "8", "1,400"]
    problem = next(p for p in everything(task) if p.answer == "1,400")
    assert task.score(problem, "It is 1400.") == 1.0
    assert task.score(problem, "It is 1400, or 7.") == 0.0


def test_the_split_is_by_question_and_fixed(tmp_path):
    """No question on both sides; the same seed, the same sides; doubles count once."""
    task = load(tmp_path, GSM8K + GSM8K[:2])
    held = {p.prompt for p in task.held_out()}
    rng = np.random.default_rng(0)
    drawn = {task.sample(rng).prompt for _ in range(200)}
    assert len(held) == 2
    assert len(drawn) == 3
    assert not held & drawn
    assert load(tmp_path, GSM8K).held_out() == task.held_out()
    assert load(tmp_path, GSM8K, held_out_seed=2).held_out() != task.held_out()


def test_columns_template_difficulty_and_marker(tmp_path):
    rows = [{"q": f"{i}?", "a": i, "hops": i % 2} for i in range(1, 5)]
    changes = {"question": "q", "answer": "a", "difficulty": "hops"}
    shape = {"template": "Q: {question}\nA:", "answer_after": "Answer:", "verifier": "exact"}
    task = load(tmp_path, rows, **changes, **shape)
    problem = task.training()[0]
    assert problem.prompt == f"Q: {problem.answer}?\nA:"
    assert problem.difficulty == int(problem.answer) % 2
    assert task.score(problem, f"hm. Answer: 9. Answer: {problem.answer}") == 1.0
    assert task.score(problem, problem.answer) == 0.0
    assert [task.formatted(text) for text in ("Answer: x", "x")] == [True, False]


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        ([*GSM8K, "{oops"], {}, r"q.jsonl, line 6: not JSON"),
        ([*GSM8K, "[1]"], {}, r"line 6: a JSON object is wanted"),
        ([*GSM8K, "", '{"question": "x"}'], {}, r"line 7: there is no column 'answer', only"),
        ([*GSM8K, {"question": " ", "answer": "1"}], {}, r"line 6: 'question' is empty"),
        ([*GSM8K, {"question": "x", "answer": [1]}], {}, r"line 6: 'answer' must be a text"),
        ([*GSM8K, {"question": "x", "answer": "#### "}], {}, r"line 6: 'answer' holds no answer"),
        ([*GSM8K, {"question": "x", "answer": "many"}], {}, r"line 6: 'answer' holds no answer"),
        ([*GSM8K, GSM8K[0] | {"answer": "9"}], {}, r"line 6: the question of line 1 again"),
        (GSM8K, {"difficulty": "hops"}, r"line 1: 'hops' must be a whole number, got None"),
        (GSM8K, {"held_out": 5}, r"5 different questions, task.held_out=5 leaves none"),
        (GSM8K, {"template": "{quest}"}, r"has no {question} in it"),
    ],
)
def test_bad_rows_name_file_and_line(tmp_path, rows, changes, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, rows, **changes)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(ValueError, match="is no file"):
        Jsonl(path=str(tmp_path / "no.jsonl"), **KNOBS)


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `tasks`")
    import pyarrow

    path = tmp_path / "q.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(GSM8K), path)
    task = Jsonl(path=str(path), **KNOBS)
    assert task.held_out() == load(tmp_path, GSM8K).held_out()
    path.write_bytes(b"PAR1 not")
    with pytest.raises(ValueError, match="cannot be read as parquet"):
        Jsonl(path=str(path), **KNOBS)


def gym(**changes):
    knobs = {
        "dataset": "basic_arithmetic",
        "options": {},
        "size": 60,
        "data_seed": 1,
        "template": "{question}",
        "verifier": "exact",
        "answer_after": None,
        "held_out": 10,
        "held_out_seed": 1,
    }
    return ReasoningGym(**(knobs | changes))


@needs_gym
@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        ("basic_arithmetic", {"min_terms": 2, "max_terms": 2}),
        ("chain_sum", {}),
        ("letter_counting", {}),
        ("gcd", {}),
    ],
)
def test_reasoning_gym_by_name_and_options(dataset, options):
    task = gym(dataset=dataset, options=options)
    prompts = [p.prompt for p in task.held_out() + task.training()]
    assert len(set(prompts)) == len(prompts)
    assert len(task.held_out()) == 10
    problem = task.held_out()[0]
    assert task.score(problem, f" {problem.answer}\n") == 1.0
    # the package's own score gives this half a point
    assert task.score(problem, f"{problem.answer} 0") == 0.0
    assert gym(dataset=dataset, options=options).held_out() == task.held_out()


@needs_gym
def test_reasoning_gym_questions_count_once():
    """600 draws from a few hundred sums of two digits: doubles must not cross the split."""
    task = gym(size=600, options={"min_terms": 2, "max_terms": 2, "max_digits": 1})
    assert len(task.held_out() + task.training()) < 600


@needs_gym
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "nope"}, "refuses task.dataset=nope"),
        ({"options": {"foo": 1}}, "foo"),
        ({"held_out": 60}, "leaves none to train on"),
    ],
)
def test_what_reasoning_gym_refuses_is_said(changes, message):
    with pytest.raises(ValueError, match=message):
        gym(**changes)
