"""Pictures of a schedule as SVG: who ran where, and how something went over time."""

from html import escape

from scheduler.schedule import Schedule, Span
from scheduler.timeline import Steps

WIDTH, LEFT, BOTTOM = 1000.0, 90.0, 18.0
MOST_ROWS, MOST_SPANS, MOST_STEPS = 96, 4000, 1000  # what one can still see, and a browser draw
ROW = 7.0
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#9c755f", "#edc948", "#ff9da7")


def gantt(schedule: Schedule) -> str:
    """A row for each accelerator, a bar for each stretch of a job on it."""
    lanes = assign_lanes(schedule)
    machines = schedule.cluster.machines
    total = sum(machine.count for machine in machines)
    rows = min(total, MOST_ROWS)
    offset, labels = 0, []
    first_row: list[int] = []
    for machine in machines:
        first_row.append(offset)
        if offset < rows:
            text = escape(f"{machine.name} {machine.accelerator}"[:15])
            labels.append(f'<text x="0" y="{(offset + 0.9) * ROW:.1f}">{text}</text>')
        offset += machine.count
    bars = []
    for span, machine, lane in lanes:
        row = first_row[machine] + lane
        if row >= rows or len(bars) >= MOST_SPANS:
            continue
        begin, end = _x(span.begin_seconds, schedule), _x(span.end_seconds, schedule)
        colour = COLOURS[hash_of(span.job) % len(COLOURS)]
        bars.append(
            f'<rect x="{begin:.2f}" y="{row * ROW:.1f}" width="{max(end - begin, 0.3):.2f}" height="{ROW - 1:.0f}" '
            f'fill="{colour}"><title>{escape(span.job)}</title></rect>'
        )
    left_out = len(lanes) - len(bars)
    note = f'<p class="soft">{left_out:,} stretches are not drawn.</p>' if left_out else ""
    return _svg("who runs on which accelerator", rows * ROW, "".join(labels + bars), schedule) + note


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


def steps_chart(title: str, steps: Steps, schedule: Schedule) -> str:
    """A value over time."""
    height = 90.0
    drawn = steps[:: max(len(steps) // MOST_STEPS, 1)]
    top = max((value for _, value in steps), default=0.0) or 1.0
    points, level = [f"M{LEFT:.1f},{height:.1f}"], height
    for moment, value in drawn:
        x = _x(moment, schedule)
        points.append(f"L{x:.1f},{level:.1f}")
        level = height - value / top * (height - 14)
        points.append(f"L{x:.1f},{level:.1f}")
    body = f'<path d="{"".join(points)}L{WIDTH:.1f},{height:.1f}Z" fill="#4e79a755" stroke="#4e79a7"/>'
    return _svg(f"{title}, at most {top:.3g}", height, f'{body}<text x="0" y="14">{top:.3g}</text>', schedule)


def hash_of(text: str) -> int:
    """A number of a name that is the same in every process."""
    return sum((i + 1) * ord(letter) for i, letter in enumerate(text))


def _x(moment: float, schedule: Schedule) -> float:
    length = max(schedule.end_seconds - schedule.begin_seconds, 1e-9)
    return LEFT + (moment - schedule.begin_seconds) / length * (WIDTH - LEFT)


def _svg(caption: str, height: float, body: str, schedule: Schedule) -> str:
    hours = (schedule.end_seconds - schedule.begin_seconds) / 3600
    ticks = "".join(
        f'<text x="{LEFT + share * (WIDTH - LEFT - 30):.0f}" y="{height + 14:.0f}">{share * hours:.3g} h</text>'
        for share in (0, 0.25, 0.5, 0.75, 1)
    )
    return (
        f'<figure><figcaption class="soft">{escape(caption)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH:.0f} {height + BOTTOM:.0f}" role="img" aria-label="{escape(caption)}">{body}{ticks}'
        "</svg></figure>"
    )
