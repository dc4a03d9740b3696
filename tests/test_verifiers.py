"""Verifiers: right, wrong, and total over hostile answers."""

from __future__ import annotations

import importlib.util
import math
import time

import numpy as np
import pytest

from grpo_ablate.isolated import Isolated, IsolatedError
from grpo_ablate.verifiers import last_number, verifier

needs_math = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="needs the extra `tasks`"
)


def hostile() -> list[str]:
    """200 answers nobody should write: garbage, megabytes, bombs, foreign digits."""
    rng = np.random.default_rng(0)
    fixed = [
        "",
        " ",
        "\x00\x00",
        "9" * 1_000_000,
        "(" * 1_000_000,
        "1," * 500_000,
        "-" * 1_000_000,
        "." * 100_000 + "1",
        "９９٤٢๔",
        "²³¹",
        "٤٢",
        "\ud800".encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
        "\\frac" * 10_000,
        "\\frac{1}{" * 500 + "2" + "}" * 500,
        "\\boxed{" * 500 + "1" + "}" * 500,
        "$" + "\\sqrt{" * 300 + "2" + "}" * 300 + "$",
        "$9^{9^{9^{9^{9}}}}$",
        "$" + "x^2+" * 400 + "1$",
        "$(x+1)^{100000}$",
        "$\\sum_{n=1}^{10^{9}} n^{n}$",
        "$\\prod_{i=1}^{1000000} i$",
        "$100000000!$",
        "$\\binom{10^8}{5\\cdot 10^7}$",
        "$\\int_0^\\infty e^{-x^{x^x}} dx$",
        "__import__('os').system('sleep 9')",
        "lambda: (yield)",
        "1e999999999",
        "nan",
        "inf",
        "-0",
        "1/0",
        "0" * 5000 + "." + "0" * 5000,
        "}{" * 10_000,
        "\\begin{matrix}" * 1000,
        "😀" * 10_000,
    ]
    letters = list("0123456789+-*/^(){}[]\\$,.= xyz\n٣٤５∞")
    noise = ["".join(rng.choice(letters, size=int(rng.integers(1, 400)))) for _ in range(150)]
    latex = ["$" + "\\frac{1}{x+" * int(k) + "1" + "}" * int(k) + "$" for k in range(15)]
    return (fixed + noise + latex)[:200]


@pytest.mark.parametrize(
    "name",
    [
        "exact",
        "number",
        pytest.param("math", marks=[needs_math, pytest.mark.slow]),
        pytest.param("python:tests.data.own_rule.strict", marks=pytest.mark.slow),
    ],
)
def test_hostile_answers_neither_raise_nor_hang(name):
    rule = verifier(name)
    assert rule("q", "1234567", "1234567") == 1.0
    answers = hostile()
    assert len(answers) == 200
    for answer in answers:
        began = time.perf_counter()
        reward = rule("q", "1234567", answer)
        # the promised bound, not a measurement: isolated calls are killed after one second
        assert time.perf_counter() - began < 2.0, answer[:80]
        assert reward == 0.0 or math.isnan(reward), answer[:80]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The answer is 5.", "5"),
        ("#### 1,234", "1234"),
        ("-3.50 dollars", "-3.5"),
        ("007", "7"),
        ("-0.0", "0"),
        (".5", "0.5"),
        ("1 then 2", "2"),
        ("no digits", None),
        ("٤٢", None),
    ],
)
def test_last_number(text, wanted):
    assert last_number(text) == wanted


@pytest.mark.slow
@needs_math
@pytest.mark.parametrize(
    ("gold", "answer", "reward"),
    [
        ("1/2", "The answer is $\\frac{1}{2}$", 1.0),
        ("\\frac{3}{4}", "\\boxed{0.75}", 1.0),
        ("$2\\sqrt{2}$", "$\\sqrt{8}$", 1.0),
        ("42", "I think 41", 0.0),
    ],
)
def test_math(gold, answer, reward):
    assert verifier("math")("q", gold, answer) == reward


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fuzzy", "task.verifier=fuzzy is unknown; there is exact, number, math and python:"),
        ("python:no.such.module.f", "there is no module .no.such.module. to import"),
        ("python:f", "there is no module .f. to import"),
    ],
)
def test_unknown_verifiers(name, message):
    with pytest.raises(ValueError, match=message):
        verifier(name)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raises", "sleeps", "dies", "speaks"])
def test_a_users_function_that_fails_is_a_fault(how):
    """NaN is what the judge counts against monitor.max_fault_share; the next answer is judged."""
    rule = verifier("python:tests.data.own_rule.moody")
    assert math.isnan(rule("q", "42", how))
    assert rule("q", "42", "42") == 1.0


@pytest.mark.slow
def test_a_child_is_gone_after_close():
    call = Isolated("tests.data.own_rule.strict")
    assert call("q", "1", "1") == 1.0
    child = call._child
    call.close()
    assert not child.is_alive()
    with pytest.raises(IsolatedError, match="could not be loaded"):
        Isolated("tests.data.own_rule.nothing")("q")
