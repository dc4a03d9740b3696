"""The documentation does what it says: each command is composed by the program, each link leads."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from argparse import ArgumentParser, Namespace
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from hydra._internal.utils import get_args_parser

from grpo_ablate import __main__ as door
from grpo_ablate import assets, compose, config
from grpo_ablate.commands import order, probe
from grpo_ablate.variants import ConfigError
from tests import markdown
from tests.conftest import ROOT

PAGES = sorted([*ROOT.glob("README*.md"), *(ROOT / "docs").glob("*.md")])
LINKED = [*PAGES, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*/**/*.md"))]
LONG = {"README.md", "README.zh.md", "cluster.md", "order.md", "probe.md"}
"""Pages that name whole suites: composing all of them takes more than five seconds."""
MARKED = [
    pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in LONG else [])
    for page in PAGES
]
MARKS = {"file", "example", "from", "run by", "command", "needs", "output"}
HARMLESS = {"cd", "source", "mkdir"}
"""Words that need no test: they are the shell's."""


class Reached(Exception):
    """The program has read a command line and would begin to work."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with what commands name and a reader would have: a model, a file of questions."""
    folder = tmp_path_factory.mktemp("desk")
    for name in ("FOLDER", "Qwen/Qwen2.5-0.5B-Instruct"):
        shutil.copytree(assets.folder("embedded:tiny"), folder / name)
        for file, change in (
            ("config.json", {"max_position_embeddings": 4096}),
            ("tokenizer_config.json", {"chat_template": "{{ messages[0]['content'] }}"}),
        ):
            path = folder / name / file
            path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    rows = [{"question": f"{n}+1:", "answer": f"#### {n + 1}"} for n in range(300)]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.fixture
def here(desk, monkeypatch):
    """At that desk, with every extra installed, and a program that stops where work begins."""

    def stop(*args, **kwargs):
        raise Reached

    def parsed(self, argv=None, namespace=None):
        real(self, argv, namespace)
        raise Reached

    def of_one_seed(hydra, name, overrides):
        """Every arm, and of each only the first seed: they are composed alike."""
        jobs = sweep(hydra, name, overrides)
        seed = next((word for word in jobs[0] if compose.arms.key_of(word) == "seed"), None)
        return [job for job in jobs if seed is None or seed in job]

    real, sweep = ArgumentParser.parse_args, compose._sweep
    monkeypatch.setattr(compose, "_sweep", of_one_seed)
    monkeypatch.setattr(ArgumentParser, "parse_args", parsed)
    monkeypatch.setattr(probe, "measure", stop)
    monkeypatch.setattr(compose.extras, "check_launcher", lambda target: None)
    monkeypatch.setattr(config, "check_installed", lambda composed: None)
    with chdir(desk):
        yield desk


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


@pytest.mark.parametrize("page", MARKED)
def test_each_command_is_one_the_program_takes(page, here):
    assert wrong_commands(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_block_is_run_or_read_somewhere(page):
    name = page.relative_to(ROOT).as_posix()
    assert wrong_fences(page.read_text(encoding="utf-8"), name) == []


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_somewhere(page):
    assert [*markdown.broken_links(page, page.read_text(encoding="utf-8"), ROOT)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_example_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for fence in markdown.fences(page.read_text(encoding="utf-8")):
        if fence.language == "python" and "example" in fence.marks:
            exec(compile(fence.text, f"{page.name}:{fence.line}", "exec"), {"__name__": "example"})


WRONG = {
    "python -m grpo_ablate clip=clip_hihger": "did you mean clip_higher",
    "python -m grpo_ablate -m seed=1,2 clip.eps_hihg=0.3": "no configuration key",
    "python -m grpo_ablate seed=1,2": "--multirun",
    "python -m grpo_ablate task=jsonl task.path=nowhere.jsonl": "is no file",
    "python -m grpo_ablate reprot": "did you mean report",
    "python -m grpo_ablate report --fast": "unrecognized arguments: --fast",
    "python -m grpo_ablate plan --flops many": "invalid float",
    "python -m grpo_ablate probe +experiment=nothing": "experiment=nothing is unknown",
    "python -m grpo_ablate order clip=hard": "the order chooses levers",
    "python -m grpo_ablate resume RUN clip=nothing": "clip=nothing is unknown",
    "python -m grpo_ablate replay RUN monitor=loud": "monitor=loud is unknown",
    "cd x && python -m grpo_ablate steps=0": "steps must lie in",
    "A=1 python -m grpo_ablate \\\n  steps=0": "steps must lie in",
    "python scripts/nothing.py": "there is no scripts/nothing.py",
    "python scripts/chaos.py --loud": "has no --loud",
    "pip install -e '.[dev]'": "does not say: a network",
    "<!-- needs: a network --> pip install 'grpo-ablate[gpu]'": "there is no extra gpu",
    "export GRPO_ABLATE_NOTHING=1": "nothing reads",
    "docker compose up": "no test runs this",
    "<!-- needs: luck --> docker compose up": "is none of GPU",
}


@pytest.mark.parametrize(("typed", "why"), WRONG.items())
def test_a_wrong_command_is_found(typed, why, here):
    mark, _, typed = typed.rpartition("--> ")
    page = f"# A page\n\n{mark + '-->' if mark else ''}\n```bash\n{typed}  # it's a remark\n```\n"
    assert len(found := wrong_commands(page)) == 1
    assert why in found[0]


def test_a_wrong_command_in_a_sentence_is_found(here):
    (found,) = wrong_commands("Type `python -m grpo_ablate steps=0`, and `python -m grpo_ablate`.")
    assert "line 1" in found


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("<!-- tested -->\n```bash\nls\n```", "unknown mark tested"),
        ("```python\n1 / 0\n```", "neither file, example nor from"),
        ("<!-- from: conf/clip/symmetric.yaml -->\n```yaml\neps: 7\n```", "does not hold this"),
        ("```\npython -m grpo_ablate steps=0\n```", "a block that is not bash"),
        ("<!-- run by: tests/test_golden.py -->\n```bash\nls\n```", "never reads docs/page.md"),
    ],
)
def test_a_wrong_block_is_found(block, why):
    assert any(why in found for found in wrong_fences(block, "docs/page.md"))


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "other.md").write_text("# Über `x`, a [link](y)\n## Two\n## Two\n```\n# no\n```\n")
    page = tmp_path / "page.md"
    page.write_text("# Here")
    good = "[1](other.md#über-x-a-link) [2](other.md#two-1) [3](#here) [4](https://a.b/c)\n# Here\n"
    assert [*markdown.broken_links(page, good, tmp_path)] == []
    bad = "[1](othr.md) [2](other.md#three) [3](#there) [4](other.md#no) ![5](../up.png) `[6](x)`"
    found = [*markdown.broken_links(page, bad, tmp_path)]
    assert [re.findall(r": (\S+)", line)[0] for line in found] == [
        *("othr.md", "other.md#three", "#there", "other.md#no", "../up.png"),
    ]
