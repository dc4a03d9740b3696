"""Text of others, made safe to look at: prompts, responses and error messages; torch-free."""

from __future__ import annotations

import unicodedata

_KEPT = "\n\t"


def visible(text: str, limit: int = 2000) -> str:
    r"""Return text in which nothing acts: what would is written out.

    Control characters (which move a terminal's cursor), marks that turn the reading direction and
    characters without a width become escapes such as ``\x1b`` and ``\u202e``; letters of every
    script stay. HTML needs its own escaping besides.

    Args:
        text: anything, from anybody.
        limit: characters kept; what is left out is counted at the end.
    """
    rest = f"… (+{len(text) - limit:,} characters)" if len(text) > limit else ""
    return "".join(_written(c) for c in text[:limit]) + rest


def one_line(text: str, limit: int = 300) -> str:
    """Return the same in one line."""
    return " ".join(visible(text, limit).split())


def _written(c: str) -> str:
    if c in _KEPT or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
        return c
    code = ord(c)
    return (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )
