"""Bad input: one line with what, where and the remedy, exit code 2, nothing created."""

from __future__ import annotations

import json
import shutil

import pytest

from grpo_ablate import assets
from grpo_ablate.__main__ import main
from grpo_ablate.files import lock
from tests.conftest import SMALL, composed, plan

# what the user types -> a part of the message
CASES = [
    (["clip=clip_hihger"], r"clip=clip_hihger is unknown (did you mean clip_higher?)"),
    (["+experiment=clip_hihger"], "experiment=clip_hihger is unknown (did you mean clip_higher?)"),
    (["clip.eps_hihg=0.3"], "clip.eps_hihg is no configuration key; see conf/clip/"),
    # K11: what the sampler alone would know makes its distribution another than the learner's
    (["+engine.top_p=0.9"], "engine.top_p is no knob of engine=transformers"),
    (["+sampling.top_k=50"], "sampling.top_k is no knob of sampling=standard"),
    (["+sampling.min_p=0.1"], "sampling.min_p is no knob of sampling=standard"),
    (["+clip.eps_hihg=0.3"], "clip.eps_hihg is no knob of clip=symmetric"),
    (["stepz=10"], "stepz is no configuration key (did you mean steps?)"),
    (["+stepz=10"], "stepz is no configuration key (did you mean steps?)"),
    (["steps=ten"], "steps must be a whole number, got 'ten'"),
    (["steps=0"], "steps must lie in [1, "),
    (["seed=-1"], "seed must lie in [0, "),
    (["lr_batch.lr_scale=0"], "lr_batch.lr_scale must lie in (0, "),
    (["model.base_lr=-1e-5"], "model.base_lr must lie in (0, "),
    (["clip.eps=1.5"], "clip.eps must lie in (0, 1), got 1.5"),
    (["clip.eps=0"], "clip.eps must lie in (0, 1), got 0"),
    (["advantage=group_std", "sampling.group_size=1"], "raise sampling.group_size to 8"),
    (["sampling.group_size=1"], "raise sampling.group_size to 8"),
    (["clip=asymmetric", "clip.eps_low=0.1"], "use clip=clip_higher"),
    (["length_penalty=target_interval", "length_penalty.low=99"], "swap them"),
    (["lr_batch.minibatches=33"], "lower lr_batch.minibatches"),
    (["+experiment=clip_higher", "clip=symmetric"], "says it moves [clip] but moves []"),
    (["+experiment=clip_higher", "advantage=smooth"], "but moves [advantage, clip]"),
    (["model=hf"], "model.path must be given: add model.path=VALUE"),
    (["model=hf", "model.path=nowhere"], "model.path=nowhere has no config.json"),
    (["engine.max_prompt_tokens=3"], "no question of task=arithmetic fits"),
    (["engine.max_new_tokens=100000"], "positions of embedded:tiny; lower them"),
    (["evaluation.problems=100000"], "lower it or raise task.held_out"),
    (["task.max_operands=1"], "max_operands"),
    (["output_dir=/dev/null/x"], "choose another output_dir"),
    (["-m", "seed=1,1"], "is asked for twice"),
    (["seed=1,2"], "To sweep over it, add --multirun"),
    (["-m", "seed=1", "hydra.sweep.dir=/dev/null/x"], "choose another output_dir"),
    (["-m", "steps=5,6"], "they differ in steps, which is no lever"),
    (["-m", "clip.eps=0.2,0.3", "+experiment=baseline"], "but moves [clip]"),
    (["hydra/sweeper=nope"], "hydra/sweeper"),
    (["--config-dir", "nowhere"], "--config-dir nowhere is no folder"),
    (["clip.eps=0.3=0.4"], "clip.eps"),
    (["clip=null"], "Config group override must be a string"),
    (["~arm"], "arm must be"),
    (["arm=foo"], "arm must be"),
    (["arm.moves=clip"], "arm must be {moves: [LEVER, ...]}"),
    (["+arm.foo=1"], "arm must be"),
    (["output_dir="], "output_dir must"),
    (['output_dir=""'], "output_dir must not be empty"),
    (["study=''"], "study must not be empty"),
    (["advantage=constant", "sampling.group_size=1"], "raise sampling.group_size to 8"),
    (["advantage=length_buckets", "sampling=dynamic", "sampling.group_size=1"], "every group dead"),
    (["advantage=group_std", "advantage.ddof=true"], "advantage.ddof must be one of [0, 1]"),
    (["advantage=group_std", "advantage.ddof=1.0"], "advantage.ddof must be one of [0, 1]"),
    (["model.name=policy"], "model=policy is unknown; there is causal_lm"),
    (["evaluation.name=sample"], "evaluation=sample is unknown"),
    (["engine.max_prompt_tokens=10"], "held-out questions of task=arithmetic have up to 13"),
    (["experiment=clip_higher"], "write +experiment=NAME"),
    (["sampling.temperature=1." + "0" * 300], "write it as an experiment file"),
    (["--resolve"], "--resolve has no place here"),
    (["--config-path", "x"], "--config-path has no place here"),
]


@pytest.mark.parametrize(("argv", "message"), CASES, ids=[" ".join(argv) for argv, _ in CASES])
def test_refused_before_anything_is_created(argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = main(argv)
    out, err = capsys.readouterr()
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1, err
    assert out == ""
    assert list(tmp_path.iterdir()) == [], "nothing is created"


@pytest.mark.parametrize(
    ("word", "message"),
    [("reprot", "did you mean report?"), ("frobnicate", "choose from train, report")],
)
def test_unknown_command(word, message, capsys):
    assert main([word]) == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def occupied(tmp_path, monkeypatch):
    """A frozen run of one step in tmp_path/out."""
    from grpo_ablate import runs

    monkeypatch.chdir(tmp_path)
    (job,) = plan("steps=1", "output_dir=out", *SMALL)
    runs.freeze(job)
    return job.folder


def test_folder_with_another_configuration(occupied, capsys):
    before = {path: path.read_bytes() for path in occupied.iterdir()}
    assert main(["steps=2", "output_dir=out", *SMALL]) == 2
    err = capsys.readouterr().err
    assert "holds a run with another configuration (steps: 1 there, 2 here)" in err
    assert {path: path.read_bytes() for path in occupied.iterdir()} == before


def test_other_conditions_beside_it(occupied, capsys):
    """An arm whose baseline is not the one that was run cannot be compared with it."""
    argv = ["+experiment=gspo", "steps=2", "output_dir=out", *SMALL]
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert "was run under other conditions" in err
    assert "baseline=small steps=2" in err
    assert not (occupied.parent.parent / "small+gspo").exists()


def test_a_freeze_that_was_killed_leaves_the_folder_usable(occupied):
    """A kill between manifest and config leaves files that are ours; they lock nobody out."""
    from grpo_ablate import runs

    (occupied / "config.yaml").unlink()
    (occupied / ".config.yaml.99.tmp").write_text("half")
    (job,) = plan("steps=1", "output_dir=out", *SMALL)
    runs.check_folder(job)
    runs.freeze(job)
    assert (occupied / "config.yaml").is_file()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_model_folder_with_a_broken_file(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(assets.folder("embedded:tiny"), tmp_path / "model")
    (tmp_path / "model" / name).write_text("{")
    assert main(["model=hf", "model.path=model"]) == 2
    assert f"{name} cannot be read" in capsys.readouterr().err


def test_model_folder_without_weights(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(assets.folder("embedded:tiny"), tmp_path / "model")
    (tmp_path / "model/model.safetensors").unlink()
    assert main(["model=hf", "model.path=model"]) == 2
    assert "has no *.safetensors" in capsys.readouterr().err


def test_folder_that_is_being_run(occupied, capsys):
    """K22: the same arm twice at once: the second refuses."""
    (occupied / "status.json").write_text(json.dumps({"state": "running", "pid": 123}))
    with lock(occupied / ".lock"):
        assert main(["steps=1", "output_dir=out", *SMALL]) == 2
    assert "is being run by another process (pid 123)" in capsys.readouterr().err


def test_folder_with_somebody_elses_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "multirun_outputs/baseline/seed=1").mkdir(parents=True)
    (tmp_path / "multirun_outputs/baseline/seed=1/thesis.tex").write_text("mine")
    assert main([]) == 2
    assert "holds files that are no run" in capsys.readouterr().err


def test_seed_zero_is_a_seed():
    """`if cfg.seed` would skip it."""
    assert composed("seed=0")["seed"] == 0
