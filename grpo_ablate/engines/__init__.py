"""Engines: prompts to completions with log-probabilities; `engine.name` is the module's name."""
