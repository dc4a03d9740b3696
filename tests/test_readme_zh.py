"""README.zh.md says what README.md says: commands, numbers, results, links."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests import markdown
from tests.conftest import ROOT

READMES = ("README.md", "README.zh.md")


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def commands(text):
    return [command.words for command in markdown.commands(text)]


def tables(text):
    """Return the numbers, names and marks of code of each row: what no translation touches."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [re.findall(r"`[^`]+`|[.\d]*\d", row) for row in rows]


def numbers(text):
    """Return every number of the sentences, as often as it stands there.

    A count that one language spells out (three seeds) is not among them.
    """
    plain = re.sub(r"`[^`]*`|\]\([^)]*\)", "", markdown.outside(text))
    return Counter(re.findall(r"\d+(?:[.,]\d+)*", plain))


def quotes(text):
    return [line for line in text.splitlines() if line.startswith(">")]


def links(text):
    return Counter(re.findall(r"\]\(([^)]+)\)", text)) - Counter(READMES)


def headings(text):
    return [line.split()[0] for line in markdown.outside(text).splitlines() if line[:1] == "#"]


@pytest.mark.parametrize("of", [commands, tables, quotes, links, headings])
def test_both_readmes_have_the_same(of):
    english, chinese = (of(read(name)) for name in READMES)
    assert english == chinese
    assert english


def test_no_number_is_lost_in_translation():
    """The gloss under the quoted verdicts repeats three of them, and nothing else is added."""
    english, chinese = (numbers(read(name)) for name in READMES)
    assert english - chinese == Counter()
    assert chinese - english == Counter({"3.1": 1, "2": 1, "7": 1})


@pytest.mark.parametrize(
    ("of", "was", "wrong"),
    [
        (commands, "clip.eps=0.1,0.15", "clip.eps=0.1,0.2"),
        (tables, "等长时 .63", "等长时 .36"),
        (tables, "`ema_std`、", ""),
        (quotes, "+8.2 pt", "+8.3 pt"),
        (links, "(docs/faq.md)", "(docs/FAQ.md)"),
        (numbers, "3.2 个百分点", "2.3 个百分点"),
    ],
)
def test_a_difference_is_found(of, was, wrong):
    text = read("README.zh.md")
    assert was in text
    assert of(text.replace(was, wrong, 1)) != of(text)
