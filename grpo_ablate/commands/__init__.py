"""The commands of `python -m grpo_ablate`, one thin module a word."""
