"""A known answer → the public function that must give it. No numerics of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grpo_ablate.analysis import curve, power, stats, unused

CASES = Path(__file__).parent.parent / "data" / "known_answers.json"


def load() -> list[dict[str, Any]]:
    """Return the cases that are committed."""
    return json.loads(CASES.read_text(encoding="utf-8"))


def evaluate(case: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the package says to a case; None where it has no such function."""
    answer = _ANSWERS.get(case["id"])
    return answer(**case["input"]) if answer else None


def _paired(arm, base):
    found = stats.paired(arm, base)
    return asdict(found) | {"sd": stats.sample_sd(stats.differences(arm, base))}


def _block(Y):
    fit = stats.block(Y)
    p_values = [c.p for c in fit.contrasts]
    return {
        "sigma_e": fit.sigma,
        "df": fit.df,
        "se": fit.contrasts[0].se,
        "delta": [c.delta for c in fit.contrasts],
        "p": p_values,
        "p_holm": list(stats.holm(p_values)),
        "ci_half": fit.contrasts[0].half,
    }


def _interaction(base, A, B, AB):
    values, found = stats.interaction(base, A, B, AB)
    named = {"per_seed": list(values), "mean": found.delta, "sd": stats.sample_sd(values)}
    return asdict(found) | named


def _multiple(p):
    return {"holm": list(stats.holm(p)), "bh": list(stats.benjamini_hochberg(p))}


def _bootstrap(x):
    lo, hi = unused.bootstrap_interval(x)
    return {"lo": lo, "hi": hi}


def _each(name: str, argument: str, function: Callable[[Any], float]) -> Callable[..., Any]:
    return lambda **given: {name: [function(value) for value in given[argument]]}


_ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {
    "paired_t": _paired,
    "welch": lambda arm, base: asdict(stats.welch(arm, base)),
    "block": _block,
    "interaction": _interaction,
    "signflip_min_p": _each("p", "n", unused.signflip_floor),
    "perm_min_p": _each("p", "n", unused.permutation_floor),
    "tcrit": _each("t", "df", stats.t_critical),
    "mde_paired_dz": _each("d", "n", power.mde_paired),
    "breakeven_rho": _each("rho", "n", power.breakeven_rho),
    "holm": _multiple,
    "boot_pct_n3": _bootstrap,
    "iqm_3x1_is_mean": lambda x: {"iqm": unused.iqm(x)},
    "iqm_robust": lambda x: {"iqm": unused.iqm(x)},
    "poi": lambda x, y: {"p": unused.probability_of_improvement(x, y)},
    "screen_c": _each("c", "n", power.screen_constant),
    "null_signs": _each("p", "n", power.null_signs),
    "auc": lambda t, y: {"auc": curve.auc(t, y)},
    "drawdown": lambda y: {"mdd": curve.drawdown(y)},
    "drawdown_chan2": lambda y: {"mdd": curve.drawdown(y)},
    "sigmoid_mid": lambda R0, A, B, Cmid, C: {"R": curve.sigmoid(C, R0, A, B, Cmid)},
    "miller_K": _each("reduction", "K", unused.repeat_reduction),
}
