"""Which GRPO training tricks help on your model and data, which do nothing, which fight."""

__version__ = "0.1.0"
