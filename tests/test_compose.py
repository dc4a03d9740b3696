"""Planning a command line: order, freezing, what Hydra is handed."""

from __future__ import annotations

from omegaconf import OmegaConf

from grpo_ablate import compose, runs
from grpo_ablate.files import read_json, write_json
from grpo_ablate.manifest import config_hash, load_config
from tests.conftest import SMALL, plan


def test_seeds_come_first_so_that_every_prefix_is_a_balanced_block():
    assert compose.seed_first(["+experiment=a,b", "steps=3", "seed=1,2"])[0] == "seed=1,2"


def test_seed_zero_and_experiments_by_glob():
    jobs = plan("-m", "+experiment=glob(eps_*)", "seed=0")
    assert [job.arm for job in jobs] == ["eps_0.15", "eps_0.25", "eps_0.3"]


def test_config_hash_follows_content_not_place():
    (one,), (two,) = plan("output_dir=a"), plan("output_dir=b")
    assert config_hash(one.config) == config_hash(two.config)
    hashes = {
        config_hash(job.config)
        for job in plan("-m", "seed=1,2", "+experiment=baseline,gspo,clip_higher")
    }
    assert len(hashes) == 6


def test_a_frozen_configuration_reads_back_the_same(tmp_path):
    """1e-10 and the like must not come back as text."""
    (job,) = plan(f"output_dir={tmp_path}", "+experiment=gspo", *SMALL)
    runs.freeze(job)
    assert load_config(job.folder) == job.config
    assert OmegaConf.to_container(OmegaConf.load(job.folder / "delta.yaml")) == job.delta
    manifest = read_json(job.folder / "manifest.json")
    assert (manifest["arm"], manifest["baseline"]) == ("small+gspo", "small")
    assert manifest["hash"] == config_hash(job.config)
    assert set(manifest["code"]) == {"commit", "dirty", "source"}


def test_a_number_written_two_ways_is_one_configuration():
    (one,), (two,) = plan("evaluation.temperature=1"), plan("evaluation.temperature=1.0")
    assert config_hash(one.config) == config_hash(two.config)


def test_arms_share_a_baseline_only_under_the_same_conditions():
    (arm,), (base,), (other,) = (
        plan("+experiment=gspo"),
        plan(),
        plan("+experiment=gspo", "evaluation.seed=5"),
    )
    assert arm.baseline_hash == config_hash(base.config)
    assert other.baseline_hash != arm.baseline_hash
    assert other.conditions == ("evaluation.seed=5",)


def test_suites_sweep_without_being_told_to():
    assert len(plan("+suite=eps_sweep")) == 12


def test_freezing_leaves_a_complete_run_alone(tmp_path):
    (job,) = plan(f"output_dir={tmp_path}", *SMALL)
    runs.freeze(job)
    write_json(job.folder / "status.json", {"state": "complete", "hash": config_hash(job.config)})
    before = {path: path.stat().st_mtime_ns for path in job.folder.iterdir()}
    runs.freeze(job)
    assert {path: path.stat().st_mtime_ns for path in job.folder.iterdir()} == before


def test_snapshot_is_named_by_content_and_holds_the_users_files(tmp_path):
    (tmp_path / "mine/experiment").mkdir(parents=True)
    (tmp_path / "mine/experiment/x.yaml").write_text("a: 1\n")
    plain = compose.snapshot(tmp_path / "out", None)
    extra = compose.snapshot(tmp_path / "out", str(tmp_path / "mine"))
    assert plain != extra
    assert (extra / "experiment/x.yaml").read_text() == "a: 1\n"
    assert compose.snapshot(tmp_path / "out", None) == plain
    (tmp_path / "notes.txt").write_text("no config")
    inside = compose.snapshot(tmp_path / "out", str(tmp_path))
    assert not (inside / "notes.txt").exists(), "configs only"
    assert not (inside / "out").exists(), "never a copy of itself"
    assert (plain / "config.yaml").read_bytes() == (
        compose.config_dir() / "config.yaml"
    ).read_bytes()
