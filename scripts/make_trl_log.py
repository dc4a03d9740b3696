"""Makes the log that tests/test_diagnose.py reads: TRL itself trains the embedded model.

    pip install -e '.[oracle]'
    python scripts/make_trl_log.py

Thirty steps of GRPO on the default task, then `trainer_state.json` as TRL's trainer saves it and
the names of GRPOConfig's options, which our remedies for TRL must be among. About a minute.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path

import numpy as np
import transformers
import trl
from datasets import Dataset

from grpo_ablate.models import causal_lm
from grpo_ablate.tasks.arithmetic import Arithmetic
from grpo_ablate.types import Problem

TARGET = Path(__file__).resolve().parent.parent / "tests/data/trl"


def main() -> None:
    policy = causal_lm(path="embedded:tiny", base_lr=2e-4, dtype="float32")
    task = Arithmetic(min_operands=2, max_operands=4, max_number=19, held_out=252, held_out_seed=1)
    rng = np.random.default_rng(1)

    def row(problem: Problem) -> dict[str, str]:
        # the model was trained with a beginning of sequence, which TRL does not add by itself
        return {"prompt": policy.tokenizer.bos_token + problem.prompt, "answer": problem.answer}

    trained = Dataset.from_list([row(task.sample(rng)) for _ in range(512)])
    held_out = Dataset.from_list([row(problem) for problem in task.held_out()[:64]])

    def right(completions: list[str], answer: list[str], **_: object) -> list[float]:
        pairs = zip(completions, answer, strict=True)
        return [float(text.rpartition("=")[2].strip() == wanted) for text, wanted in pairs]

    with tempfile.TemporaryDirectory() as folder:
        config = trl.GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            report_to="none",
            seed=1,
            learning_rate=2e-4,
            max_steps=30,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=10,
            per_device_train_batch_size=64,
            per_device_eval_batch_size=64,
            steps_per_generation=4,
            num_generations=8,
            num_generations_eval=1,
            max_completion_length=32,
            save_strategy="no",
        )
        trainer = trl.GRPOTrainer(
            policy.model,
            right,
            args=config,
            train_dataset=trained,
            eval_dataset=held_out,
            processing_class=policy.tokenizer,
        )
        trainer.train()
        TARGET.mkdir(parents=True, exist_ok=True)
        trainer.state.save_to_json(str(TARGET / "trainer_state.json"))
    options = [field.name for field in dataclasses.fields(trl.GRPOConfig)]
    made_with = {"trl": trl.__version__, "transformers": transformers.__version__}
    text = json.dumps(made_with | {"GRPOConfig": sorted(options)}, indent=1)
    (TARGET / "options.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
