"""Text of others: what would act on a terminal or a page is written out."""

from __future__ import annotations

import pytest

from grpo_ablate.files import read_json
from grpo_ablate.records import Records
from grpo_ablate.text import one_line, visible
from tests.made_up import EVIL


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("3+4=7\n\tso 7", "3+4=7\n\tso 7"),
        ("\x1b[2J\x07\x00", "\\x1b[2J\\x07\\x00"),
        ("\u202eabc\u2066\u200f", "\\u202eabc\\u2066\\u200f"),
        ("zero\u200bwidth\ufeff\x9b", "zero\\u200bwidth\\ufeff\\x9b"),
        ("\ud800", "\\ud800"),
        ("שלום мир 数学 é 🙂", "שלום мир 数学 é 🙂"),
        ("y" * 1_000_000, "y" * 2000 + "… (+998,000 characters)"),
    ],
    ids=["plain", "control", "direction", "no width", "surrogate", "scripts", "1 MB line"],
)
def test_what_would_act_is_written_out(text, shown):
    assert visible(text) == shown


def test_one_line_is_one_line():
    assert one_line("a\n b\r\u2028c") == "a b\\x0d\\u2028c"


def test_the_reason_of_a_failure_is_written_out_before_anybody_prints_it(tmp_path):
    Records(tmp_path, "hash", "source", 1).failed(ValueError(f"cannot judge {EVIL}"))
    reason = read_json(tmp_path / "status.json")["reason"]
    assert reason == f"ValueError: cannot judge {visible(EVIL)}"
