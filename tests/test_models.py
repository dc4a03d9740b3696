"""Language models from folders: chat templates, several end tokens, adapters, what is refused."""

from __future__ import annotations

import importlib.util
import json
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Qwen2Config

from grpo_ablate import assets, config
from grpo_ablate.__main__ import main
from grpo_ablate.engines.transformers import Transformers
from grpo_ablate.models import frozen, language_model, plain_weights
from grpo_ablate.records import Records
from grpo_ablate.train import train
from grpo_ablate.variants import ConfigError
from tests.conftest import SMALL, composed

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}={% endif %}"
)
needs_peft = pytest.mark.skipif(
    importlib.util.find_spec("peft") is None, reason="needs the extra `lora`"
)


def architecture(kind, **changes):
    sizes = {
        "vocab_size": 18,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return kind(**(sizes | changes))


def save(folder, kind=Qwen2Config, template=TEMPLATE, eos=(2, 0), **changes):
    """A model of an architecture, two layers and random weights, with the embedded tokenizer."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(architecture(kind, **changes))
    model.generation_config.eos_token_id = list(eos)
    model.generation_config.update(do_sample=True, top_p=0.8)  # as Qwen ships it
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(assets.folder("embedded:tiny"))
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return folder


def load(folder, **changes):
    knobs = {
        "base_lr": 1e-3,
        "dtype": "float32",
        "attention": "sdpa",
        "template": "chat",
        "system": None,
        "lora_rank": 0,
        "lora_alpha": 16.0,
        "trust_remote_code": False,
    }
    return language_model(path=str(folder), **(knobs | changes))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2.5_0.5b_instruct", "qwen2.5_1.5b_instruct"])
@pytest.mark.parametrize("lora", [0, pytest.param(4, marks=needs_peft)])
@pytest.mark.filterwarnings("ignore")
def test_the_qwen_configurations_train(name, lora, tmp_path):
    """Composed as shipped, on a random Qwen2 of two layers: a step is taken, and weights move."""
    folder = save(tmp_path / "model")
    node = composed(
        f"model={name}",
        f"model.path={folder}",
        f"model.lora_rank={lora}",
        *SMALL,
        "steps=1",
        "model.base_lr=1e-3",
        "sampling.temperature=1.5",
    )
    config.check(node)
    (tmp_path / "run").mkdir()
    assert train(node, Records(tmp_path / "run", "hash", "source", 1)) == "complete"
    assert (tmp_path / "run/metrics.csv").read_text().count("\n") == 2


def test_qwen_has_the_articles_values_and_needs_a_gpu():
    """Article B1, X1: lr 2e-6, 8 samples, 32 prompts, eps 0.2."""
    from pathlib import Path

    for path in Path("conf/model").glob("qwen*.yaml"):
        assert path.read_text().startswith("# needs a GPU")
    node = composed("model=qwen2.5_0.5b_instruct")
    assert node["model"]["base_lr"] == 2e-6
    assert node["sampling"]["group_size"] == 8
    assert node["lr_batch"]["prompts"] == 32
    assert node["clip"]["eps"] == 0.2


def test_k12_a_chat_prompt_begins_once(tmp_path):
    policy = load(save(tmp_path))
    ids = policy.encode("1+2:")
    assert ids.count(policy.tokenizer.bos_token_id) == 1
    assert policy.decode(ids) == "1+2:="
    with_system = load(tmp_path, system="9")
    assert with_system.decode(with_system.encode("1+2:")) == "91+2:="


def test_every_end_token_ends_a_response(tmp_path):
    """One of them is the padding token, too: a response keeps it, padding after it does not."""
    policy = load(save(tmp_path))
    assert policy.eos_ids == (2, 0)
    assert policy.pad_id == 0
    engine = Transformers(policy, max_prompt_tokens=9, max_new_tokens=40, max_rows=64)
    rows = engine.generate([policy.encode("1+1:")], 64, temperature=1.0, seeds=[0])
    ends = {ids[-1] for ids, cut in zip(rows.ids, rows.truncated, strict=True) if not cut}
    assert ends == {0, 2}
    assert not any(token in (0, 2) for ids in rows.ids for token in ids[:-1])


@needs_peft
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_lora_weights_merge_into_what_the_model_computes(tmp_path, tied):
    """Loading the merged weights into a plain model gives the adapted model's logits."""
    folder = save(tmp_path, tie_word_embeddings=tied)
    policy, plain = load(folder, lora_rank=4), load(folder)
    torch.manual_seed(1)
    trained = [n for n, p in policy.model.named_parameters() if p.requires_grad]
    assert trained and all(".lora_" in name for name in trained)
    for name, weight in policy.model.named_parameters():
        if ".lora_" in name:
            torch.nn.init.normal_(weight, std=0.3)
    named = dict(plain_weights(policy.model))
    assert named.keys() == dict(plain.model.named_parameters()).keys()
    ids = torch.tensor([policy.encode("1+2-3:")])
    with torch.no_grad():
        before = plain.model(input_ids=ids).logits
        plain.model.load_state_dict(named, strict=False)
        after = plain.model(input_ids=ids).logits
        wanted = policy.model(input_ids=ids).logits
        copied = frozen(policy.model)(input_ids=ids).logits
    assert (before - wanted).abs().max() > 0.01
    torch.testing.assert_close(after, wanted, rtol=0, atol=1e-5)
    torch.testing.assert_close(copied, wanted)


def test_plain_weights_of_a_plain_model_are_its_own(tmp_path):
    policy = load(save(tmp_path, LlamaConfig))
    own = dict(policy.model.named_parameters())
    assert dict(plain_weights(policy.model)).keys() == own.keys()


def test_what_cannot_be_loaded_is_said(tmp_path):
    folder = save(tmp_path / "model", template=None)
    node = composed("model=hf", f"model.path={folder}", "model.template=chat")
    with pytest.raises(ConfigError, match=r"has no chat template; set model\.template=raw"):
        config.check(node)
    with pytest.raises(ValueError, match="has no chat template"):
        load(folder)


def test_remote_code_is_off_and_said(tmp_path, capsys):
    folder = save(tmp_path / "model", LlamaConfig)
    load(folder)
    assert f"model {folder}: safetensors only, no remote code" in capsys.readouterr().err
    path = folder / "config.json"
    own = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}}
    path.write_text(json.dumps(json.loads(path.read_text()) | own))
    (folder / "mine.py").write_text("raise SystemExit('was run')")
    with pytest.raises(ValueError, match="trust_remote_code"):
        load(folder)


def test_pickled_weights_are_refused(tmp_path):
    folder = save(tmp_path / "model", LlamaConfig)
    torch.save({}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="safetensors"):
        config.check(composed("model=hf", f"model.path={folder}"))


def test_a_hub_model_that_is_not_cached_is_said_offline(tmp_path, monkeypatch, capsys):
    """One line with the remedy, exit code 2, nothing created."""
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    assert main(["model=hf", "model.path=nobody/nothing-7b"]) == 2
    said = capsys.readouterr().err
    assert "model.path=nobody/nothing-7b is no folder here and not in the hub's cache" in said
    assert not list(tmp_path.iterdir())


def test_a_cached_hub_model_is_found_offline(tmp_path, monkeypatch):
    import huggingface_hub

    cache = tmp_path / "models--some--model/snapshots/abc"
    shutil.copytree(assets.folder("embedded:tiny"), cache)
    (tmp_path / "models--some--model/refs").mkdir()
    (tmp_path / "models--some--model/refs/main").write_text("abc")
    original = huggingface_hub.snapshot_download
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda *a, **k: original(*a, cache_dir=tmp_path, **k)
    )
    assert assets.folder("some/model") == cache
