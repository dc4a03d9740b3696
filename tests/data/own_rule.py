"""Rules as a user might write them, for tests/test_verifiers.py."""

from __future__ import annotations

import os
import time


def strict(question: str, gold: str, answer: str) -> float:
    return float(answer == gold)


def moody(question: str, gold: str, answer: str) -> float | str:
    if answer == "raises":
        raise LookupError("no")
    if answer == "sleeps":
        time.sleep(30)
    if answer == "dies":
        os._exit(9)
    return "words" if answer == "speaks" else float(answer == gold)
