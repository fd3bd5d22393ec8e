"""Texts that others have written, within Markdown: they stay texts there, and cannot become links, pictures or tags."""

import re

_MARKS = re.compile(r"[\\`*\[\]<>|&]|(?<![^\W_])_|_(?![^\W_])")
_LINE_MARKS = re.compile(r"^([#+=~-]+)(?=\s|$)|^(\d+)([.)])(?=\s)")


def plain(text: object) -> str:
    """A text on one line that Markdown shows as it is."""
    line = _MARKS.sub(lambda mark: f"\\{mark[0]}", " ".join(str(text).split()))
    return _LINE_MARKS.sub(lambda mark: f"\\{mark[1]}" if mark[1] else f"{mark[2]}\\{mark[3]}", line)
