"""The article's staged order (X6): five stages, each a multirun whose verdicts decide what stays.

A decision is made once, from the runs' files, and written to `order.json` with its evidence
before anything is started that leans on it: the same command goes on where it was stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_ablate import recipe
from grpo_ablate.analysis.load import read_run
from grpo_ablate.analysis.rates import look
from grpo_ablate.compose import Job
from grpo_ablate.files import read_json, write_json
from grpo_ablate.variants import LEVERS, ConfigError


class Halt(Exception):
    """The order ends here: a gate is closed, or the user stopped it."""

    def __init__(self, state: str, reason: str) -> None:
        """Note the state (`stopped` or `interrupted`) and why."""
        super().__init__(reason)
        self.state = state


@dataclass(frozen=True)
class Study:
    """What the order works on and with."""

    plan: Mapping[str, Any]
    """conf/order/*.yaml."""
    seeds: tuple[int, ...]
    conditions: tuple[str, ...]
    """What the user typed that is neither seed nor lever, `--config-dir` aside."""
    folder: Path
    """Of order.json."""
    compose: Callable[[Sequence[str]], list[Job]]
    launch: Callable[[Sequence[str]], int]
    """Runs a training command line; returns its exit code."""
    judge: Callable[[Path, Sequence[Path]], dict[str, Any]]
    """The report of some runs of an output folder, as `analysis.report` builds it."""

    @property
    def runs(self) -> Path:
        """The output folder of all runs."""
        return self.folder / "runs"

    @property
    def conf(self) -> Path:
        """For `--config-dir`: the user's own files, and what `recipe` writes."""
        return self.folder / "conf"


class Order:
    """One staged order, resumed where its `order.json` ends."""

    def __init__(self, study: Study) -> None:
        """Take up the record in the output folder.

        Raises:
            ConfigError: the record there is of another question.
        """
        self.study, self.path = study, study.folder / "order.json"
        asked = {
            "seeds": list(study.seeds),
            "conditions": list(study.conditions),
            "plan": dict(study.plan),
        }
        study.conf.mkdir(parents=True, exist_ok=True)
        self.record = read_json(self.path) or {"asked": asked, "stages": []}
        if self.record["asked"] != asked:
            changed = [key for key in asked if asked[key] != self.record["asked"][key]]
            raise ConfigError(
                f"{self.path} is of an order with other {', '.join(changed)}; take up that one, or"
                " choose another output_dir"
            )

    def follow(self) -> dict[str, Any]:
        """Go through all stages; return the record, whose `state` says how it ended."""
        try:
            self._save(state="running", reason="")
            start = self._start()
            config = self._rate(start)
            for number, stage in enumerate(self.study.plan["stages"], 1):
                config = self._stage(f"stage{number}", stage, config)
            self._confirm(start, config)
            self._save(state="complete")
        except Halt as halt:
            self._save(state=halt.state, reason=str(halt))
        return self.record

    def _start(self) -> dict[str, Any]:
        """Return the composed baseline of the plan, and write it down as `start`."""
        flags = ("--config-dir", str(self.study.conf))
        chosen, neutral = (
            self.study.compose([*flags, f"baseline={name}", *self.study.conditions])[0].config
            for name in (self.study.plan["baseline"], "neutral")
        )
        self._neutral = neutral
        recipe.write(self.study.conf, "start", chosen, neutral)
        return chosen

    def _rate(self, config: dict[str, Any]) -> dict[str, Any]:
        """Settle the learning rate by the author's rule (B2), one set of runs a rate."""
        rule, tried = self.study.plan["rate"], dict[float, str]()
        recipe.write(self.study.conf, "rate", config, self._neutral)
        if (done := self._decided("rate")) is None:
            scale, looks = float(config["lr_batch"]["lr_scale"]), []
            while scale not in tried and len(tried) < rule["rounds"]:
                jobs = self._run("rate", [f"lr_batch.lr_scale={scale}"] if tried else [])
                try:
                    seen = look([read_run(job.folder) for job in jobs], rule)
                except ValueError as error:  # runs that failed at once, or too short a study
                    raise Halt("stopped", f"the rate cannot be judged: {error}") from error
                tried[scale] = seen["advice"]
                looks.append({"lr_scale": scale, **seen})
                scale *= {"double": 2.0, "halve": 0.5}.get(seen["advice"], 1.0)
            done = self._decide({"stage": "rate", "looks": looks, **settle(tried)})
        if done["lr_scale"] is None:
            raise Halt("stopped", done["why"])
        return config | {"lr_batch": config["lr_batch"] | {"lr_scale": done["lr_scale"]}}

    def _stage(self, name: str, stage: Mapping[str, Any], config: dict[str, Any]) -> dict[str, Any]:
        """Run a stage's arms against the recipe so far, and carry on the one that helps most."""
        recipe.write(self.study.conf, name, config, self._neutral)
        if (done := self._decided(name)) is None:
            arms, skipped = distinct(
                stage["arms"],
                lambda arm: self._jobs(name, [f"+experiment={arm}"], self.study.seeds[:1]),
            )
            jobs = self._run(name, [f"+experiment={','.join(['baseline', *arms])}"])
            report = self.study.judge(self.study.runs, [job.folder for job in jobs])
            done = self._decide(
                {"stage": name, "name": stage["name"], "skipped": skipped, **choose(report, name)}
                | {"filtered": _filtered(jobs, stage.get("max_filter_ratio"))}
            )
        if done["halt"] or done["filtered"]:
            raise Halt("stopped", done["halt"] or done["filtered"])
        if done["carried"] is None:
            return config
        (job,) = self._jobs(name, [f"+experiment={done['carried']}"], self.study.seeds[:1])
        return {**job.config, "arm": None}

    def _confirm(self, start: dict[str, Any], config: dict[str, Any]) -> None:
        """Take each carried lever out again, on seeds that no choice was made with."""
        moved = [lever for lever in LEVERS if config[lever] != start[lever]]
        self.record["recipe"] = {lever: config[lever] for lever in moved}
        if not moved or self._decided("leave_one_out"):
            return
        recipe.write(self.study.conf, "recipe", config, self._neutral)
        arms = {f"without_{lever}": {lever: "start"} for lever in moved}
        if len(moved) > 1:
            arms["without_all"] = dict.fromkeys(moved, "start")
        for arm, options in arms.items():
            recipe.write_arm(self.study.conf, arm, options)
        seeds = [seed + max(self.study.seeds) for seed in self.study.seeds]
        jobs = self._run("recipe", [f"+experiment=baseline,{','.join(arms)}"], seeds)
        report = self.study.judge(self.study.runs, [job.folder for job in jobs])
        self._decide({"stage": "leave_one_out", "seeds": seeds, **choose(report, "recipe")})

    def _run(self, name: str, arms: Sequence[str], seeds: Sequence[int] = ()) -> list[Job]:
        jobs = self._jobs(name, arms, seeds)
        recipe.adopt(jobs, self.study.runs)
        code = self.study.launch(self._typed(name, arms, seeds))
        if code == 130:
            raise Halt("interrupted", "the same command goes on")
        if code == 2:
            raise Halt("stopped", f"{name} could not start; the message is above")
        return jobs

    def _jobs(self, name: str, arms: Sequence[str], seeds: Sequence[int] = ()) -> list[Job]:
        return self.study.compose(self._typed(name, arms, seeds))

    def _typed(self, name: str, arms: Sequence[str], seeds: Sequence[int]) -> list[str]:
        """Return the command line of a stage."""
        study = self.study
        listed = ",".join(str(seed) for seed in seeds or study.seeds)
        flags = ["--config-dir", str(study.conf), f"baseline={name}", *study.conditions]
        return [*flags, f"output_dir={study.runs}", "-m", f"seed={listed}", *arms]

    def _decided(self, name: str) -> dict[str, Any] | None:
        """Return a stage's decision; one that stopped the order is made anew."""
        made = (done for done in self.record["stages"] if done["stage"] == name)
        return next((done for done in made if not (done.get("halt") or done.get("filtered"))), None)

    def _decide(self, decision: dict[str, Any]) -> dict[str, Any]:
        others = [done for done in self.record["stages"] if done["stage"] != decision["stage"]]
        self.record["stages"] = [*others, decision]
        write_json(self.path, self.record)
        return decision

    def _save(self, **state: str) -> None:
        self.record |= state
        write_json(self.path, self.record)


def distinct(
    arms: Sequence[str], compose: Callable[[str], object]
) -> tuple[list[str], dict[str, str]]:
    """Leave out arms that cannot be composed: the recipe has them already. With the reason."""
    kept, skipped = [], {}
    for arm in arms:
        try:
            compose(arm)
            kept.append(arm)
        except ConfigError as error:
            skipped[arm] = str(error)
    return kept, skipped


def settle(tried: Mapping[float, str]) -> dict[str, Any]:
    """Return the rate to go on with: the last one that asked for no change.

    Where doubling and halving alternate the smaller of the two is taken: flat is slow, oscillating
    is broken. None where every rate tried still oscillates.
    """
    told = "; ".join(f"x{scale:g}: {advice}" for scale, advice in tried.items())
    steady = [scale for scale, advice in tried.items() if advice == "keep"]
    slow = [scale for scale, advice in tried.items() if advice == "double"]
    if steady:
        return {"lr_scale": steady[-1], "why": told}
    if slow:
        return {"lr_scale": max(slow), "why": f"{told}; the largest that does not oscillate"}
    why = f"{told}; no rate tried is steady: look at the reward first"
    return {"lr_scale": None, "why": why, "halt": why}


def choose(report: Mapping[str, Any], baseline: str) -> dict[str, Any]:
    """Return which arm is carried on: of those that help the one with the largest difference.

    Args:
        report: of the stage's runs, from `analysis.report`.
        baseline: the stage's.

    Returns:
        `arms` (the evidence), `carried` (an experiment, or None), `why`, and `halt`: the reason
        to stop, where the baseline itself cannot be judged against (article: X5); else empty.
    """
    state = next(base for base in report["baselines"] if base["arm"] == baseline)
    halt = ""
    if state["unstable"]:
        halt = f"{baseline} is unstable: {state['unstable']}; no stage starts on such a one (X5)"
    elif state["finished"] < 2:
        halt = f"{state['finished']} of {state['planned']} seeds of {baseline} finished"
    kept = ("arm", "verdict", "sentence", "delta", "lo", "hi", "p_holm", "finished")
    arms = [{key: arm[key] for key in kept} for arm in report["arms"]]
    helping = sorted((arm for arm in arms if arm["verdict"] == "helps"), key=lambda a: a["delta"])
    carried = helping[-1] if helping else None
    why = "no arm of the stage helps: the recipe stays as it is"
    if carried:
        others = ", ".join(arm["arm"] for arm in helping[:-1])
        why = carried["sentence"] + (f" Also helping, not stacked: {others}." if others else "")
    name = carried["arm"].removeprefix(f"{baseline}+") if carried else None
    return {"arms": arms, "carried": name, "why": why, "halt": halt}


def _filtered(jobs: Sequence[Job], limit: float | None) -> str:
    """Tell where an arm's runs dropped more groups than the stage allows (article: S2, X6)."""
    for job in jobs if limit is not None else ():
        ratios = read_run(job.folder).metrics.get("sampling/filter_ratio")
        if ratios is not None and limit is not None and (mean := float(ratios.mean())) > limit:
            return (
                f"{job.arm} seed {job.config['seed']} filtered {mean:.0%} of its groups, above"
                f" {limit:.0%}: go back to the reward design (article: S2, X6)"
            )
    return ""
