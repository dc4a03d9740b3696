"""Files shipped inside the package: the embedded model, found as `embedded:<name>`; torch-free."""

from __future__ import annotations

from pathlib import Path

PREFIX = "embedded:"


def folder(path: str) -> Path:
    """Return the folder a model path names: `embedded:tiny`, or a folder of the user's.

    Args:
        path: `embedded:<name>` or a path, absolute or relative to the working directory.
    """
    if path.startswith(PREFIX):
        return Path(__file__).parent / path.removeprefix(PREFIX)
    return Path(path).expanduser()
