"""The documentation does what it says: each command is composed by the program, each link leads."""

from __future__ import annotations

import json
import re
import shutil
from argparse import ArgumentParser
from contextlib import chdir

import pytest

from grpo_ablate import assets, compose, config
from grpo_ablate.commands import probe
from tests import markdown
from tests.conftest import ROOT
from tests.promises import Reached, wrong_commands, wrong_fences

PAGES = sorted([*ROOT.glob("README*.md"), *(ROOT / "docs").glob("*.md")])
LINKED = [*PAGES, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*/**/*.md"))]
LONG = {"README.md", "README.zh.md", "cluster.md", "order.md", "probe.md"}
"""Pages that name whole suites: composing all of them takes more than five seconds."""
MARKED = [
    pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in LONG else [])
    for page in PAGES
]


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
