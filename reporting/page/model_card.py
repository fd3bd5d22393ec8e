"""Model card of a run as a section of its report, with its pictures."""

import base64
import re

from shunter.tracking.tree import RunTree

FOLDER = "model_card"
PICTURE = re.compile(r"^!\[(?P<words>[^\]]*)\]\((?P<name>[^)]+)\)\s*$")


def card_section(tree: RunTree) -> list[dict[str, str]]:
    """Return the parts of the card in order: Markdown as `text`, or a `picture` with its description as `words`.

    A picture is embedded as an image, in which scripts cannot run.
    """
    parts: list[dict[str, str]] = []
    lines: list[str] = []
    for line in tree.artifacts.get(f"{FOLDER}/model_card.md", "").splitlines():
        picture = PICTURE.match(line)
        drawing = tree.artifacts.get(f"{FOLDER}/{picture['name']}") if picture else None
        if picture is None or drawing is None:
            lines.append(line)
            continue
        encoded = base64.b64encode(drawing.encode()).decode()
        parts.append({"text": "\n".join(lines)})
        parts.append({"picture": f"data:image/svg+xml;base64,{encoded}", "words": picture["words"]})
        lines = []
    return [*parts, {"text": "\n".join(lines)}] if lines else parts
