"""What a Markdown page promises: its commands, its links, its code; and what is wrong with them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_MARK = re.compile(r"<!-- ([a-z ]+?)(?:: (.+?))? -->")
_INLINE = re.compile(r"`(python -m grpo_ablate [^`]+)`")
_LINK = re.compile(r"(?<!\\)\]\(([^()\s]+)\)")
_ANCHOR = re.compile(r"""<a id="([^"]+)">""")
_CODE = re.compile(r"`[^`\n]*`")
SHELLS = ("bash", "sh", "shell", "console")
NEEDS = ("GPU", "a cluster", "a network")


@dataclass(frozen=True)
class Fence:
    """A fenced block, with the marks on the lines right before it."""

    line: int
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """One simple command of a page: its words without assignments, and the marks of its block."""

    line: int
    words: tuple[str, ...]
    variables: tuple[str, ...]
    marks: dict[str, str]

    @property
    def needs(self) -> str:
        """What the page says it needs, by commas."""
        return self.marks.get("needs", "")


def fences(text: str) -> Iterator[Fence]:
    """Yield each fenced block; a mark is `<!-- key: value -->` or `<!-- key -->`."""
    lines, at = text.splitlines(), 0
    while at < len(lines):
        if not lines[at].startswith("```"):
            at += 1
            continue
        end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith("```")), None)
        if end is None:
            raise ValueError(f"line {at + 1}: a fence that nothing closes")
        marks: dict[str, str] = {}
        before = at - 1
        while before >= 0 and (found := _MARK.fullmatch(lines[before])):
            marks[found[1]] = ", ".join(filter(None, [found[2], marks.get(found[1])]))
            before -= 1
        body = "".join(f"{line}\n" for line in lines[at + 1 : end])
        yield Fence(at + 1, lines[at].strip("` "), body, marks)
        at = end + 1


def commands(text: str) -> Iterator[Command]:
    """Yield the commands of shell fences, and of `python -m grpo_ablate ...` in the text."""
    for fence in fences(text):
        if fence.language in SHELLS:
            for words in _split(fence.text):
                yield _command(fence.line, words, fence.marks)
    for number, line in enumerate(outside(text).splitlines(), 1):
        for typed in _INLINE.findall(line):
            yield _command(number, shlex.split(re.sub(r"\[.+?\]", "", typed)), {})


def _split(script: str) -> Iterator[list[str]]:
    """Yield the simple commands of a script, comments gone, continued lines joined."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=";|&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if not set(word) <= set(";&|"):
                words.append(word)
            elif words:
                yield words
                words = []


def _command(line: int, words: list[str], marks: dict[str, str]) -> Command:
    first = next((i for i, word in enumerate(words) if not re.match(r"\w+=", word)), len(words))
    variables = tuple(word.partition("=")[0] for word in words[:first])
    return Command(line, tuple(words[first:]), variables, marks)


def outside(text: str) -> str:
    """Return the text with its fenced blocks blanked, line by line."""
    shown, inside = [], False
    for line in text.splitlines():
        border = line.startswith("```")
        shown.append("" if inside or border else line)
        inside ^= border
    return "\n".join(shown)


def anchors(text: str) -> set[str]:
    """Return what can be linked to: the headings as a forge names them, and `<a id>`."""
    found = set(_ANCHOR.findall(text))
    for line in outside(text).splitlines():
        if heading := re.match(r"#{1,6} +(.+)", line):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
            slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            again = sum(
                re.fullmatch(rf"{re.escape(slug)}(-\d+)?", each) is not None for each in found
            )
            found.add(f"{slug}-{again}" if again else slug)
    return found


@cache
def _anchors_of(path: Path) -> set[str]:
    return anchors(path.read_text(encoding="utf-8"))


def broken_links(page: Path, text: str, root: Path) -> Iterator[str]:
    """Yield a line for each relative link or anchor that leads nowhere, or out of the project."""
    for number, line in enumerate(outside(text).splitlines(), 1):
        for target in _LINK.findall(_CODE.sub("", line)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page.resolve()
            if not path.exists() or not path.is_relative_to(root):
                yield f"{page.name}:{number}: {target} is not there"
            elif anchor and anchor not in (anchors(text) if path == page else _anchors_of(path)):
                yield f"{page.name}:{number}: {target} names no heading"
