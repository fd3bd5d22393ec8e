"""Pictures of a schedule as SVG: who ran where, and how something went over time."""

import math
from html import escape

from shunter.extensions.fleet.schedule import Schedule, Span
from shunter.extensions.fleet.timeline import Steps

WIDTH, LEFT, BOTTOM = 1000.0, 110.0, 18.0
MOST_ROWS, MOST_SPANS, MOST_STEPS = 96, 4000, 1000  # what one can still see, and a browser draw
ROW, GAP = 10.0, 4.0  # of an accelerator, and between machines
LETTER = 6.5  # mean width of one, to see whether a name fits on its bar
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#9c755f", "#edc948", "#ff9da7")


def gantt(schedule: Schedule) -> str:
    """A row for each accelerator, a bar for each stretch of a job on it, as a figure of a page."""
    body, height, left_out = _bars(schedule)
    note = f'<p class="soft">{left_out:,} stretches are not drawn.</p>' if left_out else ""
    return _figure("who runs on which accelerator", height, body, schedule) + note


def gantt_picture(schedule: Schedule) -> str:
    """The same as a picture that stands alone (SVG), on white."""
    body, height, _ = _bars(schedule)
    style = "text{font:11px sans-serif;fill:#444}text.on{font-size:9px;fill:#fff}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height + BOTTOM:.0f}" width="{WIDTH:.0f}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>{body}{_ticks(height, schedule)}</svg>'
    )


def _bars(schedule: Schedule) -> tuple[str, float, int]:
    """The bars with their names, their height together, and how many stretches are left out."""
    lanes = assign_lanes(schedule)
    machines = schedule.cluster.machines
    total = sum(machine.count for machine in machines)
    rows = min(total, MOST_ROWS)
    offset, labels = 0, []
    first_row: list[int] = []
    for index, machine in enumerate(machines):
        first_row.append(offset)
        if offset < rows:
            text = escape(f"{machine.name} {machine.accelerator}"[:16])
            labels.append(f'<text x="0" y="{offset * ROW + index * GAP + ROW:.1f}">{text}</text>')
        offset += machine.count
    drawn_machines = sum(first < rows for first in first_row)
    bars: list[str] = []
    named: set[tuple[Span, int]] = set()  # on whose bars there is a name already
    for span, machine, lane in lanes:
        row = first_row[machine] + lane
        if row >= rows or len(bars) >= MOST_SPANS:
            continue
        begin, end = _x(span.begin_seconds, schedule), _x(span.end_seconds, schedule)
        colour, top = COLOURS[hash_of(span.job) % len(COLOURS)], row * ROW + machine * GAP
        name = escape(span.job)
        bars.append(
            f'<rect x="{begin:.2f}" y="{top:.1f}" width="{max(end - begin, 0.3):.2f}" height="{ROW - 1:.0f}" '
            f'fill="{colour}"><title>{name}</title></rect>'
        )
        is_first = (span, machine) not in named
        named.add((span, machine))
        if is_first and len(span.job) * LETTER < end - begin:
            labels.append(f'<text x="{begin + 3:.1f}" y="{top + ROW - 1.5:.1f}" class="on">{name}</text>')
    return "".join(bars + labels), rows * ROW + drawn_machines * GAP, len(lanes) - len(bars)


def assign_lanes(schedule: Schedule) -> list[tuple[Span, int, int]]:
    """Which accelerator of a machine a stretch is drawn on: the first ones that are free then."""
    free_at = [[float("-inf")] * machine.count for machine in schedule.cluster.machines]
    found = []
    for span in sorted(schedule.spans, key=lambda span: (span.begin_seconds, span.job)):
        for machine, count in span.placement:
            lanes = [i for i, at in enumerate(free_at[machine]) if at <= span.begin_seconds][:count]
            for lane in lanes:
                free_at[machine][lane] = span.end_seconds
                found.append((span, machine, lane))
    return found


def steps_chart(title: str, steps: Steps, schedule: Schedule, part: Steps = ()) -> str:
    """A value over time, and a part of it, darker."""
    height, top = 90.0, max((value for _, value in steps), default=0.0) or 1.0
    body = _area(steps, top, height, schedule, "#4e79a755") + (
        _area(part, top, height, schedule, "#4e79a7") if part else ""
    )
    most = f"{top:,.0f}" if top >= 100 else f"{top:.3g}"
    return _figure(f"{title}, at most {most}", height, f'{body}<text x="0" y="14">{most}</text>', schedule)


def _area(steps: Steps, top: float, height: float, schedule: Schedule, colour: str) -> str:
    drawn = steps[:: max(len(steps) // MOST_STEPS, 1)]
    points, level = [f"M{LEFT:.1f},{height:.1f}"], height
    for moment, value in drawn:
        x = _x(moment, schedule)
        points.append(f"L{x:.1f},{level:.1f}")
        level = height - value / top * (height - 14)
        points.append(f"L{x:.1f},{level:.1f}")
    return f'<path d="{"".join(points)}L{WIDTH:.1f},{height:.1f}Z" fill="{colour}" stroke="#4e79a7"/>'


def hash_of(text: str) -> int:
    """A number of a name that is the same in every process."""
    return sum((i + 1) * ord(letter) for i, letter in enumerate(text))


def _x(moment: float, schedule: Schedule) -> float:
    length = max(schedule.end_seconds - schedule.begin_seconds, 1e-9)
    return LEFT + (moment - schedule.begin_seconds) / length * (WIDTH - LEFT)


def _figure(caption: str, height: float, body: str, schedule: Schedule) -> str:
    return (
        f'<figure><figcaption class="soft">{escape(caption)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH:.0f} {height + BOTTOM:.0f}" role="img" aria-label="{escape(caption)}">{body}'
        f"{_ticks(height, schedule)}</svg></figure>"
    )


def _ticks(height: float, schedule: Schedule) -> str:
    """Round times below a picture, about five of them."""
    length = schedule.end_seconds - schedule.begin_seconds
    unit, name = (3600.0, "h") if length >= 7200 else (60.0, "min") if length >= 120 else (1.0, "s")
    step = round_up(length / unit / 5) * unit
    ticks = []
    for number in range(int(length / step) + 1 if step else 1):
        x = _x(schedule.begin_seconds + number * step, schedule)
        if x <= WIDTH - 40:
            text = f"{number * step / unit:,.10g} {name}"
            ticks.append(f'<text x="{x:.0f}" y="{height + 14:.0f}">{text}</text>')
    return "".join(ticks)


def round_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5 and their tenfolds."""
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((share * power for share in (1, 2, 2.5, 5) if share * power >= value), 10 * power)
