"""A question as token ids: the one place where a prompt is tokenised; torch-free."""

from __future__ import annotations

from typing import Any, Literal


def encode(
    tokenizer: Any, prompt: str, template: Literal["raw", "chat"], system: str | None
) -> list[int]:
    """Return the prompt's ids; beginning-of-sequence first where the model has one, once (K12).

    Args:
        tokenizer: of transformers.
        prompt: the question.
        template: `chat` wraps it in the tokenizer's chat template, which brings its own
            beginning; `raw` gives it as it is.
        system: system message of the chat; None for none.
    """
    if template == "raw":
        ids: list[int] = tokenizer.encode(prompt, add_special_tokens=False)
        bos = tokenizer.bos_token_id
        return ids if bos is None else [bos, *ids]
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": prompt})
    return list(
        tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
    )
