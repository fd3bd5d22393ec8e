"""Diagram of the blocks of a model and the data flow between them, as SVG."""

import html
from itertools import pairwise

from shunter.reporting.card.architecture import Architecture, Block

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 230, 62, 34, 46, 12
LONGEST_TITLE = 29
PASSING = "passing "  # prefix of the name of a gap in a row through which an arrow passes
INPUT_COLOUR, BLOCK_COLOUR, OUTPUT_COLOUR = "#e8f1fb", "#ffffff", "#eaf6ea"


def diagram(architecture: Architecture) -> str:
    """Draw each block as a box with the shape of its output for one sample, in rows below its input blocks.

    An arrow that crosses a row passes through a gap between the boxes of that row (Sugiyama et al., IEEE SMC 11(2),
    1981).
    """
    rows, ways = _layout(architecture.blocks)
    width = max(_width(row) for row in rows) + 2 * MARGIN
    height = len(rows) * (HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN
    places: dict[str, tuple[float, float]] = {}  # middle of the upper edge of each box
    for number, row in enumerate(rows):
        left = (width - _width(row)) / 2
        for name in row:
            places[name] = (left + _box_width(name) / 2, MARGIN + number * (HEIGHT + GAP_Y))
            left += _box_width(name) + GAP_X
    arrows = [_arrow([places[name] for name in way]) for way in ways]
    boxes = [_box(block, places[block.name]) for block in architecture.blocks]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="system-ui, sans-serif">\n'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#6b7280"/></marker></defs>\n' + "\n".join((*arrows, *boxes)) + "\n</svg>\n"
    )


def _layout(blocks: tuple[Block, ...]) -> tuple[list[list[str]], list[list[str]]]:
    """Return the names in each row from left to right, and for each arrow the names of boxes and gaps along it."""
    depth: dict[str, int] = {}
    for block in blocks:  # in the order of running, in which sources come before the blocks that they feed
        depth[block.name] = 1 + max((depth[source] for source in block.inputs if source in depth), default=-1)
    rows: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    ways: list[list[str]] = []
    feeds: dict[str, list[str]] = {block.name: [] for block in blocks}
    for block in blocks:
        rows[depth[block.name]].append(block.name)
        for source in (name for name in block.inputs if name in depth):
            passed = [f"{PASSING}{len(ways)}.{level}" for level in range(depth[source] + 1, depth[block.name])]
            for level, name in enumerate(passed, start=depth[source] + 1):
                rows[level].append(name)
            way = [source, *passed, block.name]
            for before, after in pairwise(way):
                feeds.setdefault(after, []).append(before)
            ways.append(way)
    place: dict[str, float] = {}
    for row in rows:
        middle = {name: sum(place[source] for source in feeds[name]) / max(len(feeds[name]), 1) for name in row}
        row.sort(key=lambda name: middle[name] if feeds[name] else 0.5)
        place |= {name: (position + 0.5) / len(row) for position, name in enumerate(row)}
    return rows, ways


def _box_width(name: str) -> float:
    return 0 if name.startswith(PASSING) else WIDTH


def _width(row: list[str]) -> float:
    return sum(map(_box_width, row)) + GAP_X * (len(row) - 1)


def _box(block: Block, place: tuple[float, float]) -> str:
    middle, y = place
    colour = INPUT_COLOUR if block.kind == "input" else OUTPUT_COLOUR if block.kind == "output" else BLOCK_COLOUR
    title = block.name + ("" if block.kind in ("input", "output") else f": {block.kind}")
    title = title if len(title) <= LONGEST_TITLE else title[: LONGEST_TITLE - 1] + "…"
    details = "not run" if block.shape is None else f"gives {shape_text(block.shape)}"
    details += f", {block.parameters:,} parameters" if block.parameters else ""
    return (
        f'<rect x="{middle - WIDTH / 2:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="7" fill="{colour}" '
        'stroke="#9aa3af"/>'
        f'<text x="{middle:g}" y="{y + 26:g}" text-anchor="middle" font-size="14" font-weight="600">'
        f"{html.escape(title)}</text>"
        f'<text x="{middle:g}" y="{y + 46:g}" text-anchor="middle" font-size="12" fill="#4b5563">'
        f"{html.escape(details)}</text>"
    )


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as text, such as `27 x 16`; `1` for a single number."""
    return " x ".join(map(str, shape)) or "1"


def _arrow(places: list[tuple[float, float]]) -> str:
    """Draw an arrow from the lower edge of the first box to the upper edge of the last box, through the gaps."""
    bend = GAP_Y * 0.7
    x, y = places[0][0], places[0][1] + HEIGHT
    path = f"M{x:g} {y:g}"
    for next_x, next_y in places[1:]:
        path += f" C{x:g} {y + bend:g} {next_x:g} {next_y - bend:g} {next_x:g} {next_y:g}"
        x, y = next_x, next_y + HEIGHT
        if (next_x, next_y) != places[-1]:
            path += f" V{y:g}"
    return f'<path d="{path}" fill="none" stroke="#6b7280" stroke-width="1.3" marker-end="url(#head)"/>'
