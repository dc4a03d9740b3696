"""`export`: what is written gives the run's own logits when somebody else loads it."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_ablate import assets, exporting, runs
from grpo_ablate import train as loop
from grpo_ablate.__main__ import main
from grpo_ablate.checkpoint import Checkpoints
from grpo_ablate.files import read_json
from grpo_ablate.manifest import config_hash, load_config
from grpo_ablate.records import Records
from tests.conftest import SMALL, plan

TINY = assets.folder("embedded:tiny")
LORA = ["model=hf", f"model.path={TINY}", "model.lora_rank=4", "model.dtype=float64"]
"""float64: merging adds in another order, which float32 would show at 6e-6."""
needs_peft = pytest.mark.skipif(
    importlib.util.find_spec("peft") is None, reason="needs the extra `lora`"
)
pytestmark = pytest.mark.filterwarnings("ignore")  # peft's own


def trained(root, *overrides):
    """Train three steps as the worker does; return the run's folder and its living policy."""
    policies = []

    def assembled(config, records, original=loop.assemble):
        policies.append((stages := original(config, records)).policy)
        return stages

    (job,) = plan(
        *SMALL,
        f"output_dir={root}",
        "steps=3",
        "checkpoint.every=1",
        "model.base_lr=3e-3",  # an adapter starts at 0 and has three steps to move
        "lr_batch.warmup=1",
        *overrides,
    )
    runs.freeze(job)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "assemble", assembled)
        records = Records(job.folder, config_hash(job.config), "source", 3)
        assert loop.train(job.config, records) == "complete"
    return job.folder, policies[0]


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("full"))


@pytest.fixture(scope="module")
def lora(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("lora"), *LORA)


def logits(model):
    ids = AutoTokenizer.from_pretrained(TINY)("3+4-2:12", return_tensors="pt").input_ids
    with torch.no_grad():
        return model(input_ids=ids).logits


def load(folder, policy):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=policy.model.dtype)


def check(model, policy):
    """The run's logits to 1e-5, and not those it began with."""
    wanted = logits(policy.model)
    assert (logits(load(TINY, policy)) - wanted).abs().max() > 1e-3
    torch.testing.assert_close(logits(model), wanted, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", pytest.param("lora", marks=needs_peft)])
def test_a_plain_folder_has_the_runs_logits(kind, request, tmp_path, capsys):
    run, policy = request.getfixturevalue(kind)
    out = tmp_path / "a/model"
    assert main(["export", str(run), str(out)]) == 0
    assert f"{out}: step 3 of {run}" in capsys.readouterr().out
    model = AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    check(model, policy)
    assert model.dtype == policy.model.dtype and type(model).__name__ == "LlamaForCausalLM"
    for path in (*TINY.glob("tokenizer*"), TINY / "generation_config.json"):
        assert (out / path.name).read_bytes() == path.read_bytes()
    assert read_json(out / exporting.ABOUT)["step"] == 3
    assert os.listdir(tmp_path / "a") == ["model"], "no temporary folder is left"


@pytest.mark.slow
@needs_peft
def test_an_adapter_alone_has_the_runs_logits_on_its_base(lora, tmp_path):
    from peft import PeftModel

    run, policy = lora
    assert main(["export", str(run), str(tmp_path / "out"), "--adapter"]) == 0
    assert not list((tmp_path / "out").glob("model*"))
    base = read_json(tmp_path / "out/adapter_config.json")["base_model_name_or_path"]
    check(PeftModel.from_pretrained(load(base, policy), tmp_path / "out"), policy)


@pytest.mark.slow
def test_a_run_begins_where_another_was_exported(full, tmp_path):
    """The folder is a `model.path`; an empty folder is no obstacle; bfloat16 rounds once."""
    run, policy = full
    out = tmp_path / "out"
    out.mkdir()
    assert main(["export", str(run), str(out), "--dtype", "bfloat16"]) == 0
    next_run, _ = trained(tmp_path / "next", "model=hf", f"model.path={out}", "steps=1")
    assert read_json(next_run / "status.json")["state"] == "complete"
    written = AutoModelForCausalLM.from_pretrained(out, dtype="auto")
    assert written.dtype == torch.bfloat16
    own = dict(policy.model.named_parameters())
    for name, weight in written.named_parameters():
        assert torch.equal(weight, own[name].bfloat16())


@pytest.mark.slow
def test_which_checkpoint(full, tmp_path):
    run, _ = full
    kept = Checkpoints(run, config_hash(load_config(run)), every=1, keep_last=9, keep_best=1)
    best = kept.best()["step"]
    for wanted, step in (("2", 2), ("best", best), ("last", 3)):
        assert main(["export", str(run), str(tmp_path / wanted), "--step", wanted]) == 0
        about = read_json(tmp_path / wanted / exporting.ABOUT)
        assert (about["step"], about["seed"], about["arm"]) == (step, 1, run.parent.name)
        model = AutoModelForCausalLM.from_pretrained(tmp_path / wanted)
        weights = kept.tensors(step)
        for name, weight in model.named_parameters():
            assert torch.equal(weight, weights[f"model.{name}"])


@pytest.mark.slow
def test_a_death_while_writing_leaves_nothing(full, tmp_path, monkeypatch):
    run, _ = full

    def full_disk(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(exporting, "_copy", full_disk)
    assert main(["export", str(run), str(tmp_path / "out")]) == 2
    assert not list(tmp_path.iterdir())


def frozen(root, *overrides):
    """A run's folder before its first step."""
    (job,) = plan(*SMALL, f"output_dir={root}", *overrides)
    runs.freeze(job)
    return job.folder


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["{root}", "{root}/out"], r"{root} is no run; name a folder such as ARM/seed=1"),
        (["{run}", "{root}"], r"{root} exists and is not an empty folder; name another one"),
        (["{run}", "{run}/config.yaml"], r"config.yaml exists and is not an empty folder"),
        (["{run}", "{root}/out"], "has no good checkpoint for --step last (none was written yet)"),
        (["{run}", "{root}/out", "--step", "7"], "has no good checkpoint for --step 7"),
        (["{run}", "{root}/out", "--step", "best"], "has no good checkpoint for --step best"),
        (["{run}", "{root}/out", "--adapter"], "{run} trained all weights, it has no adapter"),
    ],
)
def test_what_is_refused_in_one_line(tmp_path, capsys, argv, message):
    run = frozen(tmp_path)
    names = {"run": run, "root": tmp_path}
    assert main(["export", *(word.format(**names) for word in argv)]) == 2
    said = capsys.readouterr().err.strip()
    assert message.format(**names) in said
    assert said.startswith("grpo_ablate: ") and said.count("\n") == 0
    assert not (tmp_path / "out").exists()


def test_another_base_model_is_refused(tmp_path, capsys):
    """The manifest's fingerprint: an adapter on other weights would be another model."""
    folder = shutil.copytree(TINY, tmp_path / "model")
    run = frozen(tmp_path / "runs", "model=hf", f"model.path={folder}")
    path = folder / "config.json"
    path.write_text(path.read_text() + " ")
    assert main(["export", str(run), str(tmp_path / "out")]) == 2
    assert "holds other files than when this run was planned" in capsys.readouterr().err
    shutil.rmtree(folder)
    assert main(["export", str(run), str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
