"""`resume RUN OVERRIDE...`: what may be changed, what is noted, and what then is no clean arm."""

from __future__ import annotations

import json

import pytest
from omegaconf import OmegaConf

from grpo_ablate.analysis.load import read_run
from grpo_ablate.commands import resume
from grpo_ablate.files import read_json, write_json
from grpo_ablate.variants import ConfigError
from tests.conftest import SMALL, composed


@pytest.fixture
def paused(tmp_path):
    """A run folder as a pause leaves it, less its checkpoint."""
    write_json(tmp_path / "manifest.json", {})
    write_json(tmp_path / "status.json", {"state": "paused", "step": 4})
    plain = OmegaConf.to_yaml(OmegaConf.create(composed(*SMALL)))
    (tmp_path / "config.yaml").write_text(plain)
    return tmp_path


TWO_SIDED = {"name": "two_sided", "eps_low": 0.15, "eps_high": 0.15, "dual_clip": None}
OVERLONG = {"name": "overlong_soft", "max_length": 16}  # its file refers to engine.max_new_tokens


@pytest.mark.parametrize(
    ("typed", "key", "expected"),
    [
        ("clip=two_sided", "clip", TWO_SIDED),
        ("clip.dual_clip=3.0", "clip.dual_clip", 3.0),  # null before: a key all the same
        ("length_penalty=overlong_soft", "length_penalty", OVERLONG),
    ],
    ids=["option", "null", "interpolated"],
)
def test_a_resume_takes_options_and_values(paused, typed, key, expected):
    resume._deviate(paused, [typed])
    (noted,) = read_json(paused / "manifest.json")["deviations"]
    assert noted["step"] == 4 and list(noted["overrides"]) == [key]
    found = noted["overrides"][key]
    assert found == expected or expected.items() <= found.items()


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("clip=two_sidded", "clip=two_sidded is unknown .did you mean two_sided"),
        ("clip.epz=0.1", "clip.epz is no key of this run"),
        ("model=hf", "model makes the run what it is"),
        ("clip.eps=-1", "clip.eps"),
    ],
)
def test_a_resume_refuses_and_notes_nothing(paused, typed, message):
    with pytest.raises(ConfigError, match=message):
        resume._deviate(paused, [typed])
    assert read_json(paused / "manifest.json") == {}


def test_an_alarm_that_changed_the_learning_rate_leaves_no_clean_arm(tmp_path):
    write_json(tmp_path / "manifest.json", {"arm": "a", "seed": 1, "baseline": "b"})
    event = {"step": 1, "signal": "x", "action": "warn"}
    (tmp_path / "events.jsonl").write_text(json.dumps(event) + "\n")
    assert not read_run(tmp_path).deviated
    (tmp_path / "events.jsonl").write_text(json.dumps(event | {"action": "rollback"}) + "\n")
    assert read_run(tmp_path).deviated
