"""Where a model's files are: in the package, in a folder, or on the hub; torch-free."""

from __future__ import annotations

import re
from pathlib import Path

PREFIX = "embedded:"
_HUB = re.compile(r"[\w.-]+/[\w.-]+")
_WANTED = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "*.py"]


class ModelMissingError(ValueError):
    """A model's files are neither here nor to be had."""


def folder(path: str) -> Path:
    """Return the folder a model path names; a hub's model is fetched once, then cached.

    Args:
        path: `embedded:<name>`, a path, absolute or relative to the working directory, or the
            hub's `owner/name` where no such folder exists.

    Raises:
        ModelMissingError: a hub's name, not in the cache, and the hub cannot be reached.
    """
    if path.startswith(PREFIX):
        return Path(__file__).parent / path.removeprefix(PREFIX)
    local = Path(path).expanduser()
    if local.exists() or not _HUB.fullmatch(path):
        return local
    return _from_hub(path)


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True, allow_patterns=_WANTED))
    except LocalEntryNotFoundError:
        pass
    try:
        return Path(snapshot_download(name, allow_patterns=_WANTED))
    except Exception as error:  # offline, unknown, gated: the library raises a dozen kinds
        raise ModelMissingError(
            f"model.path={name} is no folder here and not in the hub's cache, and fetching it"
            f" failed ({type(error).__name__}); name a folder, or run `hf download {name}` where"
            " there is a network"
        ) from error
