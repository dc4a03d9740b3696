"""Holding a page against the program: its commands through the real parsers, its blocks."""

from __future__ import annotations

import os
import re
import tomllib
from argparse import Namespace
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

from hydra._internal.utils import get_args_parser

from grpo_ablate import __main__ as door
from grpo_ablate import compose, config
from grpo_ablate.commands import order
from grpo_ablate.variants import ConfigError
from tests import markdown
from tests.conftest import ROOT

MARKS = {"file", "example", "from", "run by", "command", "needs", "output", "bench"}
HARMLESS = {"cd", "source", "mkdir"}
"""Words that need no test: they are the shell's."""


class Reached(Exception):
    """The program has read a command line and would begin to work."""


def refusal(argv: list[str]) -> str:
    """Return why the program refuses a command line; empty where it would begin to work."""
    return _refusal(tuple(argv), os.getcwd())


@cache
def _refusal(argv: tuple[str, ...], cwd: str) -> str:
    said = StringIO()
    with redirect_stderr(said), redirect_stdout(StringIO()):
        try:
            code = _reach([*argv])
        except Reached:
            return ""
        except ConfigError as error:
            return str(error)
        except SystemExit as error:
            code = error.code
    return said.getvalue().strip().splitlines()[-1] if code else ""


def _reach(argv: list[str]) -> int:
    """Go through the program's own door as far as it can go without training."""
    word, *rest = argv or ["train"]
    if word == "order":
        return order.main([*rest, "--dry-run"])
    if word in ("resume", "replay") and len(rest) > 1:
        _composed(get_args_parser().parse_intermixed_args(rest[1:]))
    if word == "train" or word[0] in "+~-" or "=" in word:
        if {"-h", "--help"} & {*argv}:
            return door.main(argv)
        _composed(get_args_parser().parse_intermixed_args(rest if word == "train" else argv))
        return 0
    return door.main(argv)


def _composed(args: Namespace) -> None:
    jobs, many = compose.plan(args)
    if not many:
        compose.refuse_idle_launcher(args.overrides)
    for job in {job.arm: job for job in jobs}.values():
        config.check(job.config)


def wrong_commands(text: str) -> list[str]:
    """Return what is wrong with a page's commands; the page's own files are written first."""
    for fence in markdown.fences(text):
        if name := fence.marks.get("file"):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(fence.text)
    found = []
    for command in markdown.commands(text):
        if why := _wrong(command):
            found.append(f"line {command.line}: {' '.join(command.words)}: {why}")
    return found


def _wrong(command: markdown.Command) -> str:
    needs = {*filter(None, command.needs.split(", "))}
    if unknown := needs - {*markdown.NEEDS}:
        return f"needs: {', '.join(unknown)} is none of {', '.join(markdown.NEEDS)}"
    if "run by" in command.marks:
        return ""
    words = [re.sub(r"^(\.[\w-]+/bin/)?(python|pip)3?$", r"\2", word) for word in command.words]
    match words:
        case ["python", "-m", "grpo_ablate", *argv]:
            return refusal(argv)
        case ["python", "-m", "venv", _] | []:
            return ""
        case ["python", "-m", module, *argv]:
            return "" if module == "pytest" else f"{module} is no module that is tested here"
        case ["python" | "bash", script, *argv]:
            return _wrong_script(script, argv)
        case ["pip", "install", *argv]:
            return _wrong_install(argv, command)
        case ["export", *variables]:
            return next(filter(None, map(_unknown_variable, variables)), "")
        case [word, *_] if word in HARMLESS or command.needs:
            return ""
    return "no test runs this, and it says not what it needs"


def _wrong_script(script: str, argv: list[str]) -> str:
    path = ROOT / script
    path = path / "__main__.py" if path.is_dir() else path
    if not path.is_file():
        return f"there is no {script}"
    source = path.read_text(encoding="utf-8")
    flags = [word.partition("=")[0] for word in argv if word.startswith("--")]
    return ", ".join(f"{script} has no {flag}" for flag in flags if f'"{flag}"' not in source)


def _wrong_install(argv: list[str], command: markdown.Command) -> str:
    asked = {extra for word in argv for extra in re.findall(r"\[(.+)\]", word)}
    if unknown := {name for extra in asked for name in extra.split(",")} - extras():
        return f"there is no extra {', '.join(sorted(unknown))}"
    return (
        ""
        if "a network" in command.needs or "command" in command.marks
        else "it does not say: a network"
    )


def _unknown_variable(typed: str) -> str:
    name = typed.partition("=")[0]
    return "" if name in sources() else f"nothing reads {name}"


@cache
def sources() -> str:
    return "".join(path.read_text() for path in sorted((ROOT / "grpo_ablate").rglob("*.py")))


@cache
def extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {*project["optional-dependencies"]}


def wrong_fences(text: str, name: str) -> list[str]:
    """Return the blocks of which nothing is held against the program.

    Args:
        text: of the page.
        name: of the page, as a test that runs its blocks has it.
    """
    found = []
    for fence in markdown.fences(text):
        where = f"line {fence.line}"
        first = fence.text.splitlines()[0] if fence.text else ""
        if unknown := {*fence.marks} - MARKS:
            found.append(f"{where}: unknown mark {', '.join(unknown)}")
        if (test := fence.marks.get("run by")) and name not in (ROOT / test).read_text():
            found.append(f"{where}: {test} never reads {name}")
        if fence.language in ("python", "yaml", "json", "jsonl"):
            source = fence.marks.get("from")
            if source and fence.text not in (ROOT / source).read_text(encoding="utf-8"):
                found.append(f"{where}: {source} does not hold this")
            if not {"file", "example", "from"} & {*fence.marks}:
                found.append(f"{where}: neither file, example nor from")
        elif fence.language not in markdown.SHELLS and re.match(r"(\$ |python|pip )", first):
            found.append(f"{where}: a command in a block that is not bash")
    return found
