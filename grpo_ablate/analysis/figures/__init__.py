"""Pictures of runs and studies: PNG and SVG, the same bytes for the same data; no torch."""

from grpo_ablate.analysis.figures.curves import AXES, accuracy
from grpo_ablate.analysis.figures.forest import Difference, forest
from grpo_ablate.analysis.figures.matrix import Interaction, interactions
from grpo_ablate.analysis.figures.overlay import draw_comparison, draw_run
from grpo_ablate.analysis.figures.signals import signals
from grpo_ablate.analysis.figures.smoothness import Smoothness, smoothness
from grpo_ablate.analysis.figures.study import draw

__all__ = [
    "AXES",
    "Difference",
    "Interaction",
    "Smoothness",
    "accuracy",
    "draw",
    "draw_comparison",
    "draw_run",
    "forest",
    "interactions",
    "signals",
    "smoothness",
]
