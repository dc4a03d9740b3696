"""The W&B workspace of a study: what to look at, arms as means over their seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpo_ablate.files import write_json
from grpo_ablate.publish import STEP

SECTIONS: dict[str, tuple[str, ...]] = {
    "held-out accuracy": ("eval/accuracy", "eval/sampled_accuracy"),
    "reward": ("reward/mean", "reward/raw_mean"),
    "entropy": ("policy/entropy",),
    "length": ("completion/length_mean", "completion/truncated_frac"),
    "ratio p1 and p99": ("ratio/p01", "ratio/p99"),
    "clip": ("ratio/clip_frac_low", "ratio/clip_frac_high"),
    "grad norm": ("optim/grad_norm",),
    "filter ratio": ("sampling/filter_ratio", "reward/frac_zero_std"),
    "did the trick act, and alarms": ("technique/activity", "monitor/alarms"),
}
"""Section → metrics, one panel each, in the order they are read."""


def build(entity: str, project: str) -> Any:
    """Return the workspace: a line for each arm, mean of its seeds, band from least to most."""
    import wandb_workspaces.reports.v2 as panels
    import wandb_workspaces.workspaces as workspaces

    def plot(metric: str) -> Any:
        return panels.LinePlot(
            title=metric,
            x=STEP,
            y=[metric],
            groupby=panels.Config("ablation.arm"),
            groupby_aggfunc="mean",
            groupby_rangefunc="minmax",
            aggregate=True,
            smoothing_type="none",
            max_runs_to_show=100,
        )

    sections = [
        workspaces.Section(name=name, panels=[plot(m) for m in metrics], is_open=True)
        for name, metrics in SECTIONS.items()
    ]
    settings = workspaces.WorkspaceSettings(x_axis=STEP, smoothing_type="none", max_runs=100)
    return workspaces.Workspace(
        entity=entity, project=project, name="Ablation", sections=sections, settings=settings
    )


def save_json(workspace: Any, path: Path) -> None:
    """Write what would be saved on the server."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # private, and the only way to see a workspace without a server: pinned with wandb-workspaces
    write_json(path, workspace._to_model().model_dump(mode="json", by_alias=True))
