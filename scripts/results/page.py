"""docs/results.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import claims
from runs import BASE, CLIP, DYNAMIC, NO_STD, STACK, Study, judged

from grpo_ablate.files import read_json

ARTICLE = {  # section E, 800 steps of math reasoning with a full-size model
    BASE: ("0.32 → 0.51", "1.8 → 0.9", "280 → 420"),
    CLIP: ("0.53", "1.05", "400"),
    DYNAMIC: ("0.52", "–", "–"),
    NO_STD: ("0.49", "–", "–"),
    STACK: ("0.50", "below clip-higher alone", "–"),
}

TITLES = {
    "recorded": "Section E: the recorded experiment",
    "rate": "A9, stage 5: does no std want another rate?",
    "eps": "C5: the ε sweep",
    "advantage": "A1–A5: the advantage family",
}


def page(target: Path) -> str:
    """Return the whole page."""
    studies = {name: found for name in TITLES if (found := judged(target / name))}
    parts = [_head(studies)]
    if "recorded" in studies:
        recorded = studies["recorded"]
        parts += [_table(recorded), claims.table(recorded), _probe(target / "recorded")]
    for name, found in studies.items():
        parts.append(_study(name, found))
    parts.append(_order(target / "order"))
    return "\n\n".join(filter(None, parts)) + "\n"


def _head(studies: Mapping[str, Study]) -> str:
    lines = [
        "# The article's experiments on the embedded default",
        "",
        "Written by `scripts/results` from the files in [results/](results/); run by"
        " `scripts/reproduce_article.sh`. The embedded model and task were fixed before any trick"
        " was tried on them ([embedded_default.md](embedded_default.md)), and nothing was tuned"
        " towards the article. Its figures are one practitioner's, on a full-size model and"
        " mathematics that we do not have: what can be compared is the direction of each effect,"
        " not its size.",
        "",
        "| study | runs complete | steps | seeds | code | hours of one core |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in studies.items():
        done = [run for run in found.runs if run.state == "complete"]
        commits = sorted({run.manifest["code"]["commit"][:9] for run in found.runs})
        steps = sorted({int(run.config["steps"]) for run in found.runs})
        lines.append(
            f"| [{TITLES[name]}](#{name}) | {len(done)} of {len(found.runs)} |"
            f" {', '.join(map(str, steps))} |"
            f" {', '.join(map(str, found.found['study']['seeds']))} | {', '.join(commits)} |"
            f" {sum(run.seconds for run in done) / 3600:.1f} |"
        )
    lines += [
        "",
        "Hours are of two runs at once on a shared machine that did other work besides: costs are"
        " therefore compared in generated tokens, which do not depend on it.",
    ]
    return "\n".join(lines)


def _table(found: Study) -> str:
    lines = [
        "## The table, theirs and ours",
        "",
        "Theirs: section E. Ours: mean over seeds of the first logged step → of the last five rows;"
        " held-out accuracy is the mean of the last five evaluations, with its difference from"
        " standard GRPO and the 95 % interval of that.",
        "",
        "| arm | reward: theirs | ours | entropy: theirs | ours | length: theirs | ours |"
        " held-out accuracy | difference, pt | verdict | tokens |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for arm, theirs in ARTICLE.items():
        if not found.end(arm, "reward/mean"):
            continue
        cells = [f"`{arm}`"]
        for their, column, digits in zip(
            theirs,
            ("reward/mean", "policy/entropy", "completion/length_mean"),
            (3, 3, 1),
            strict=True,
        ):
            end = fmean(found.end(arm, column).values())
            cells += [their, f"{found.start(arm, column):.{digits}f} → {end:.{digits}f}"]
        lines.append("| " + " | ".join([*cells, *_judgement(found, arm)]) + " |")
    return "\n".join(lines)


def _judgement(found: Study, arm: str) -> list[str]:
    accuracy = fmean(found.scores(arm).values()) if found.scores(arm) else float("nan")
    if arm == BASE:
        return [f"{accuracy:.3f}", "–", "baseline", "1"]
    row = found.arm(arm)
    if row["delta"] is None:
        return [f"{accuracy:.3f}", "–", row["verdict"], "–"]
    between = f"{100 * row['lo']:+.1f}…{100 * row['hi']:+.1f}"
    tokens = row["cost"].get("tokens")
    return [
        f"{accuracy:.3f}",
        f"{100 * row['delta']:+.1f} ({between})",
        row["verdict"],
        "–" if tokens is None else f"×{tokens:.2f}",
    ]


def _probe(folder: Path) -> str:
    found = read_json(folder / "probe" / "probe.json")
    if not found:
        return ""
    lines = [
        "## Did they act? The probe",
        "",
        "One saved rollout of the untrained model through each arm ([probe.md](probe.md)).",
        "",
        "| arm | verdict | activity | gradient: cosine | norm | why |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["arms"]:
        numbers = [row.get("activity"), row.get("cosine"), row.get("relative_norm")]
        cells = ["–" if x is None else f"{x:.4g}" for x in numbers]
        lines.append(
            f"| `{row['arm']}` | {row['verdict']} | {' | '.join(cells)} | {row.get('why') or ''} |"
        )
    return "\n".join(lines)


def _study(name: str, found: Study) -> str:
    lines = [f'<a id="{name}"></a>', "", f"## {TITLES[name]}", ""]
    lines += [f"- {row['sentence']}" for row in found.found["arms"]]
    lines += [f"- {row['sentence']}" for row in found.found["interactions"]]
    lines += [f"- warning: {text}" for text in found.found["warnings"]]
    ranked = [
        (row["smoothness"]["rank"], row["arm"], row["smoothness"])
        for row in (*found.found["arms"], *found.found["baselines"])
        if row["smoothness"]["rank"] is not None
    ]
    if name == "eps" and ranked:
        lines += [
            "",
            "The article's rule is the ε with the smoothest curve. By the interquartile range of"
            " the changes over the last half, among arms that are not worse, beside what sampling"
            " of the questions alone would give:",
            "",
            *(
                f"{rank}. `{arm}`: {row['value']:.4f} (sampling alone {row['floor']:.4f})"
                for rank, arm, row in sorted(ranked)
            ),
        ]
    lines += [
        "",
        f"![Held-out accuracy, each arm over its baseline](results/{name}/fig/accuracy_steps.png)",
        "",
        f"![Differences with intervals](results/{name}/fig/forest.png)",
        "",
        f"Everything else: [results/{name}/report/REPORT.md](results/{name}/report/REPORT.md).",
    ]
    return "\n".join(lines)


def _order(folder: Path) -> str:
    if not (folder / "ORDER.md").is_file():
        return ""
    text = (folder / "ORDER.md").read_text(encoding="utf-8")
    body = text.replace("\n## ", "\n### ").replace("# The staged order", "## The staged order", 1)
    return f"{body.rstrip()}\n\n![The ladder](results/order/ladder.png)"
