"""The three mirrored trees, and everything that must be complete: configs, functions, docs."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from grpo_ablate import metrics, variants
from grpo_ablate.distributions import HISTOGRAMS
from grpo_ablate.variants import GROUPS, LEVERS
from tests.conftest import ROOT, composed

CONF = ROOT / "conf"
NODES = sorted(path for group in GROUPS for path in (CONF / group).glob("*.yaml"))


def names_in(group: str) -> set[str]:
    return {OmegaConf.load(path)["name"] for path in (CONF / group).glob("*.yaml")}


@pytest.mark.parametrize("group", LEVERS)
def test_configs_mirror_functions(group):
    files = {path.stem for path in (CONF / group).glob("*.yaml")}
    assert files == set(variants.names(group)) == names_in(group)


@pytest.mark.parametrize("group", LEVERS)
def test_functions_mirror_tests(group):
    text = (ROOT / f"tests/techniques/test_{group}.py").read_text()
    missing = [n for n in variants.names(group) if not re.search(rf"\b{group}\.{n}\b", text)]
    assert not missing, "each technique is called by its own group's test"


@pytest.mark.parametrize("path", NODES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_config_file_fits_its_function(path: Path):
    node = composed(f"{path.parent.name}={path.stem}", *_mandatory(path))[path.parent.name]
    variants.check(path.parent.name, node)


def _mandatory(path: Path) -> list[str]:
    node = OmegaConf.load(path)
    return [f"{path.parent.name}.{k}=x" for k in node if OmegaConf.is_missing(node, k)]


@pytest.mark.parametrize("group", LEVERS)
def test_signatures_read_from_source_are_the_real_ones(group):
    module = import_module(f"grpo_ablate.techniques.{group}")
    for name in variants.names(group):
        parameters = inspect.signature(getattr(module, name)).parameters.values()
        real = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        assert set(variants.signature(group, name)) == real


@pytest.mark.parametrize("group", LEVERS)
def test_every_technique_documents_formula_source_and_knobs(group):
    module = import_module(f"grpo_ablate.techniques.{group}")
    for name in variants.names(group):
        text = inspect.getdoc(getattr(module, name))
        assert "Source:" in text or group == "lr_batch", name
        for knob in variants.signature(group, name):
            assert re.search(rf"^\s+{knob}:", text, re.MULTILINE), (name, knob)


def test_docs_define_exactly_the_logged_metrics():
    text = (ROOT / "docs/metrics.md").read_text()
    documented = set(re.findall(r"^\| `([a-z_0-9]+/[a-zA-Z_0-9]+)`", text, re.MULTILINE))
    halves = {"eval/selection_accuracy", "eval/test_accuracy"}
    evaluation = {"eval/accuracy", "eval/sampled_accuracy", "eval/length_mean", "eval/accuracy_N"}
    evaluation |= halves | {"eval/samples", *HISTOGRAMS}
    assert documented == set(metrics.METRICS) | evaluation


def test_every_top_level_key_is_read():
    """K23: a key that nothing reads gives a perfect, meaningless null result."""
    source = "".join(
        path.read_text() for path in (ROOT / "grpo_ablate").rglob("*.py") if path.stem != "config"
    )
    for key in OmegaConf.load(CONF / "config.yaml"):
        if key in ("defaults", "hydra"):
            continue
        assert f'"{key}"]' in source or f'.get("{key}"' in source, key


def test_sizes():
    """No file over 300 lines, no function over 60."""
    import ast

    for path in (ROOT / "grpo_ablate").rglob("*.py"):
        text = path.read_text()
        assert len(text.splitlines()) <= 300, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 60, (path, node.name)


@pytest.mark.parametrize("group", LEVERS)
def test_docs_have_a_row_for_each_technique_and_its_knobs(group):
    text = (ROOT / "docs/techniques.md").read_text()
    rows = dict(re.findall(rf"^\| \[`{group}=(\w+)`\]\(\S+\) \|(.*)$", text, re.MULTILINE))
    assert rows.keys() == set(variants.names(group))
    for name, row in rows.items():
        knobs = set(re.findall(r"`(\w+)`", row.split(" | ")[2]))
        assert knobs == set(variants.signature(group, name)), name
    assert all((ROOT / "docs" / link).is_file() for link in re.findall(r"\]\((\.\./\S+)\)", text))
