"""study.yaml: promised before the first run, and kept."""

from __future__ import annotations

import pytest

from grpo_ablate import manifest, streams, study
from grpo_ablate.manifest import config_hash
from grpo_ablate.variants import ConfigError
from tests.conftest import SMALL, composed, plan

BASE = {
    "steps": 400,
    "seed": 1,
    "judge": {"horizon": 500, "earliest": 300, "window": 5, "margin": 0.02, "alpha": 0.05},
}


def test_it_grows_by_arms_and_seeds_alone(tmp_path):
    study.freeze(tmp_path, [("baseline", "baseline", BASE)])
    first = study.read(tmp_path)
    assert (first.horizon, first.window, first.margin, first.alpha) == (400, 5, 0.02, 0.05)
    study.freeze(tmp_path, [("a", "baseline", BASE), ("a", "baseline", {**BASE, "seed": 2})])
    second = study.read(tmp_path)
    assert second.arms == {
        "baseline": {"baseline": "baseline", "seeds": [1]},
        "a": {"baseline": "baseline", "seeds": [1, 2]},
    }
    before = (tmp_path / "study.yaml").read_bytes()
    study.freeze(tmp_path, [("a", "baseline", BASE)])
    assert (tmp_path / "study.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"steps": 300}, "horizon 400"),
        ({"judge": BASE["judge"] | {"horizon": 350}}, "horizon 400"),
        ({"judge": BASE["judge"] | {"window": 3}}, "window 5"),
        ({"judge": BASE["judge"] | {"margin": 0.05}}, "margin 0.02"),
        ({"judge": BASE["judge"] | {"alpha": 0.1}}, "alpha 0.05"),
    ],
    ids=["steps", "horizon", "window", "margin", "alpha"],
)
def test_nothing_is_replanned_after_the_first_run(tmp_path, changed, key):
    study.freeze(tmp_path, [("baseline", "baseline", BASE)])
    before = (tmp_path / "study.yaml").read_bytes()
    with pytest.raises(ConfigError, match=f"froze {key} .*choose another output_dir"):
        study.freeze(tmp_path, [("a", "baseline", {**BASE, **changed})])
    assert (tmp_path / "study.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"horizon": 500, "earliest": 300}, "judge.window"),
        (BASE["judge"] | {"margin": 0}, "judge.margin"),
        (BASE["judge"] | {"alfa": 0.05}, "did you mean alpha"),
        (None, "judge must hold"),
    ],
    ids=["missing", "range", "unknown", "no node"],
)
def test_bad_knobs(node, message):
    with pytest.raises(ConfigError, match=message):
        study.check(node)


def test_the_judgement_is_no_part_of_what_a_run_is():
    one, other = composed(), composed("judge.margin=0.01", "judge.horizon=300")
    assert config_hash(one) == config_hash(other)


def test_a_a_arms_repeat_the_baseline():
    base, again, same = plan(*SMALL, "+experiment=baseline,a_a,a_a_same", "-m")
    assert [job.delta for job in (again, same)] == [{}, {}]
    assert config_hash(same.config) == config_hash(base.config) == same.baseline_hash
    assert config_hash(again.config) != config_hash(base.config)
    seeds = [streams.run_seed(job.config) for job in (base, again, same)]
    assert seeds[0] == seeds[2] == 1 != seeds[1]


def test_a_repeat_stands_beside_no_lever(tmp_path):
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\nclip: {eps: 0.3}\narm: {moves: [clip], repeat: other_seed}\n"
    (tmp_path / "experiment/bad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"arm\.repeat must be one of same_seed, other_seed"):
        plan("--config-dir", str(tmp_path), "+experiment=bad")


def test_the_source_hash_leaves_out_what_only_reads_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "_PACKAGE", tmp_path)
    (tmp_path / "analysis").mkdir()
    (tmp_path / "train.py").write_text("1")
    first = manifest.source_hash()
    (tmp_path / "analysis/report.py").write_text("2")
    assert manifest.source_hash() == first
    (tmp_path / "train.py").write_text("3")
    assert manifest.source_hash() != first
