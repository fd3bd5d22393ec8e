"""Escaping of foreign texts in Markdown, so that they cannot become links, pictures or tags."""

import re

_MARKS = re.compile(r"[\\`*\[\]<>|&]|(?<![^\W_])_|_(?![^\W_])")
_LINE_MARKS = re.compile(r"^([#+=~-]+)(?=\s|$)|^(\d+)([.)])(?=\s)")


def plain(text: object) -> str:
    """Return a text on one line, escaped so that Markdown shows it unchanged."""
    line = _MARKS.sub(lambda mark: f"\\{mark[0]}", " ".join(str(text).split()))
    return _LINE_MARKS.sub(lambda mark: f"\\{mark[1]}" if mark[1] else f"{mark[2]}\\{mark[3]}", line)
