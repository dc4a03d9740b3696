"""Config node → bound callable: the only place where a technique's name is looked up.

A node such as `{name: clip_higher, eps_low: 0.2, eps_high: 0.28}` names a public function (or
class) of its group's module, and its other keys must be *exactly* the keyword-only knobs declared
there. Signatures are read from the source text, so that the command line can check every config
without importing torch.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from grpo_ablate import knobs

LEVERS = (
    "clip",
    "advantage",
    "sampling",
    "length_penalty",
    "lr_batch",
    "shaping",
    "regularizer",
    "reduction",
    "masking",
    "tis",
)
"""The groups an arm may move; everything else is a fixed condition of a study."""

_MODULES = {group: f"techniques/{group}" for group in LEVERS} | {
    "model": "models",
    "engine": "engines/{name}",
    "task": "tasks/{name}",
    "learner": "learner",
    "evaluation": "evaluation",
    "monitor": "monitor",
    "checkpoint": "checkpoint",
    "tracker": "track",
}
GROUPS = tuple(_MODULES)

_PACKAGE = Path(__file__).parent


class ConfigError(ValueError):
    """The user's configuration cannot run; the message says what, where and the remedy."""


def check(group: str, node: Mapping[str, Any]) -> None:
    """Hold a node's name, keys, types and ranges against the source of its group.

    Args:
        group: one of GROUPS.
        node: the resolved node, with a `name`.

    Raises:
        ConfigError: unknown name, unknown or missing knob, wrong type, value out of range.
    """
    name = str(node.get("name"))
    declared = signature(group, name)
    for key in node:
        if key != "name" and key not in declared:
            raise ConfigError(f"{group}.{key} is no knob of {group}={name}{hint(key, declared)}")
    for key, annotation in declared.items():
        if key not in node:
            raise ConfigError(f"{group}={name} needs {group}.{key}; add {group}.{key}=VALUE")
        wrong = knobs.problem_with(node[key], annotation)
        if wrong:
            raise ConfigError(f"{group}.{key} {wrong}")


def bind(group: str, node: Mapping[str, Any], *inputs: Any) -> Callable[..., Any]:
    """Return the callable a node names, with the node's knobs filled in.

    Args:
        group: one of GROUPS.
        node: a node that `check` passes.
        *inputs: leading positional arguments that are known already.

    Returns:
        A partial of the group's function or class.
    """
    check(group, node)
    name = str(node["name"])
    module = import_module("grpo_ablate." + _module(group, name).replace("/", "."))
    chosen = {key: value for key, value in node.items() if key != "name"}
    return partial(
        getattr(module, _definitions(_module(group, name))[name].name), *inputs, **chosen
    )


def names(group: str) -> list[str]:
    """Return a group's legal values: public functions and constructors, or module names."""
    module = _MODULES[group]
    if "{name}" in module:
        folder = _PACKAGE / module.split("/")[0]
        return sorted(path.stem for path in folder.glob("*.py") if path.stem[0] != "_")
    return sorted(_definitions(module))


def signature(group: str, name: str) -> dict[str, Any]:
    """Return the knobs of one variant: key → annotation, as declared in the source.

    Args:
        group: one of GROUPS.
        name: one of `names(group)`.

    Raises:
        ConfigError: no such variant.
    """
    if name not in names(group):
        raise ConfigError(f"{group}={name} is unknown{hint(name, names(group))}")
    function = _definitions(_module(group, name))[name]
    if isinstance(function, ast.ClassDef):
        (function,) = _constructor(function)
    return {arg.arg: _annotation(arg) for arg in function.args.kwonlyargs}


def _module(group: str, name: str) -> str:
    return _MODULES[group].format(name=name)


@cache
def _definitions(module: str) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """Return the module's public functions, and classes with a constructor in snake case."""
    tree = ast.parse((_PACKAGE / f"{module}.py").read_text(encoding="utf-8"))
    found: dict[str, ast.FunctionDef | ast.ClassDef] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef) and node.name[0] != "_" and _constructor(node):
            found[_snake(node.name)] = node
    return found


def _constructor(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"]


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


def _annotation(arg: ast.arg) -> Any:
    """Evaluate a knob's annotation among the types of `knobs.py`, torch-free."""
    assert arg.annotation is not None, f"knob {arg.arg} lacks an annotation"
    scope = {**vars(knobs), "Literal": Literal}
    return eval(ast.unparse(arg.annotation), scope)  # our own source text, never the user's


def hint(word: str, known: Iterable[str]) -> str:
    """Return a parenthesis that names the nearest known word, or all of them."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]}?)" if near else f"; there is {', '.join(known) or 'none'}"
