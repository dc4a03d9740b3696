"""One door: `python -m grpo_ablate [COMMAND] ...`; without a command it trains. Torch-free."""

from __future__ import annotations

import difflib
import importlib
import sys

COMMANDS = {
    "train": "run arms over seeds (the default: no word needed)",
    "report": "judge a folder of runs: verdicts, tables and figures under report/",
    "status": "show where each run of a folder stands, live",
    "resume": "go on with a paused or stopped run: resume RUN [OVERRIDE...]",
    "plan": "what a command would run, how long, and what it could see; creates nothing",
    "probe": "does each trick act? probe [+experiment=NAME|all], in seconds",
    "order": "follow the article's staged order (X6): order seed=1,2,3 [--dry-run]",
    "export": "write a run's model as a Hugging Face folder: export RUN OUT [--adapter]",
    "push": "send finished runs to W&B, each row once",
    "dashboard": "lay out the W&B workspace of a study",
    "watch": "serve the report of a folder of runs on this machine, live",
    "replay": "show a metrics.csv to the alarms: replay RUN [monitor=NAME]",
    "diagnose": "say what is wrong with runs or another trainer's logs, and what to try",
}
"""Word → what it does; each is `grpo_ablate.commands.<word>` with `main(argv) -> exit code`."""

DEPENDENCIES = {
    *("hydra", "omegaconf", "torch", "transformers", "safetensors"),
    *("numpy", "scipy", "pandas", "matplotlib", "rich"),
}
"""Modules of the packages that pyproject.toml asks for."""

HELP = """\
Which GRPO training tricks help on your model and data, which do nothing, which fight?

  python -m grpo_ablate                                        one run of the neutral baseline
  python -m grpo_ablate +experiment=clip_higher -m seed=1,2,3  one trick over three seeds
  python -m grpo_ablate +suite=recorded                        the article's five arms
  python -m grpo_ablate clip.eps=0.15,0.25 -m seed=1,2,3       values of your own

Commands (first word):
{commands}
Arms (+experiment=):
{experiments}
Suites (+suite=): {suites}
Levers:           {levers}
Conditions:       {conditions}

Hydra's own flags work too: --cfg job, --info, --config-dir DIR, --hydra-help.
"""


def main(argv: list[str] | None = None) -> int:
    """Dispatch to a command; a first word that is no Hydra override is one.

    Returns:
        0 all complete, 2 usage or configuration, 3 some runs failed, 4 an arm cannot be compared,
        130 interrupted.
    """
    argv = sys.argv[1:] if argv is None else argv
    word = argv[0] if argv and argv[0] else "train"
    if word in ("-h", "--help", "help"):
        print(_help())
        return 0
    if word[0] in "+~-" or "=" in word:
        word, argv = "train", ["train", *argv]
    if word not in COMMANDS:
        near = difflib.get_close_matches(word, COMMANDS, n=1)
        suggestion = (
            f"; did you mean {near[0]}?" if near else f"; choose from {', '.join(COMMANDS)}"
        )
        print(f"grpo_ablate: unknown command {word}{suggestion}", file=sys.stderr)
        return 2
    try:
        command = importlib.import_module(f"grpo_ablate.commands.{word}")
        code: int = command.main(argv[1:])
    except ModuleNotFoundError as error:
        print(f"grpo_ablate: {_not_installed(error)}", file=sys.stderr)
        return 2
    return code


def _not_installed(error: ModuleNotFoundError) -> str:
    """Return what is missing where; the common case is another Python than the one installed into.

    Raises:
        ModuleNotFoundError: it is no package that we depend on.
    """
    if str(error.name).partition(".")[0] not in DEPENDENCIES:
        raise error
    return (
        f"{error.name} is not installed for {sys.executable}; use the Python that grpo_ablate was"
        " installed into (.venv/bin/python, or after `. .venv/bin/activate`), or pip install -e ."
    )


def _help() -> str:
    from grpo_ablate.compose import config_dir
    from grpo_ablate.variants import GROUPS, LEVERS

    def names(group: str) -> list[str]:
        return sorted(path.stem for path in (config_dir() / group).glob("*.yaml"))

    return HELP.format(
        commands="\n".join(f"  {word:<9} {what}" for word, what in COMMANDS.items()) + "\n",
        experiments=_wrapped(names("experiment")),
        suites=", ".join(names("suite")),
        levers=", ".join(LEVERS),
        conditions=", ".join(group for group in GROUPS if group not in LEVERS),
    )


def _wrapped(words: list[str]) -> str:
    import textwrap

    return textwrap.fill(
        ", ".join(words), 96, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )


if __name__ == "__main__":
    raise SystemExit(main())
