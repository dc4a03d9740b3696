"""Tasks: prompts, answers and verifiers; `task.name` is the module's name."""
