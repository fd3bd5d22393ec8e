"""SVG figures of a schedule: a Gantt chart of the jobs, and charts of waiting jobs, held accelerators and watts."""

import math
from collections.abc import Sequence
from html import escape

from shunter.extensions.fleet.schedule import Schedule, Span

Steps = Sequence[tuple[float, float]]
"""Pairs of a time and the value from that time on."""

WIDTH, LEFT, BOTTOM = 1000.0, 110.0, 18.0
MOST_ROWS, MOST_SPANS, MOST_STEPS = 96, 4000, 1000  # limits of what is still legible and fast to draw
ROW, GAP = 10.0, 4.0  # height of an accelerator's row, and gap between machines
LETTER = 6.5  # mean width of a letter, to check that a name fits on its bar
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#9c755f", "#edc948", "#ff9da7")


def gantt(schedule: Schedule) -> str:
    """Return a Gantt chart as a figure of a page: a row per accelerator, a bar per span of a job."""
    body, height, left_out = _bars(schedule)
    note = f'<p class="soft">{left_out:,} time spans are not drawn.</p>' if left_out else ""
    return _figure("who runs on which accelerator", height, body, schedule) + note


def _bars(schedule: Schedule) -> tuple[str, float, int]:
    """Return the bars with their labels, their total height, and the number of omitted spans."""
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
    named: set[tuple[Span, int]] = set()  # bars that are labelled already
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
    """Assign each span to accelerators of its machine: the first ones that are free at that time."""
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
    """Return an SVG chart of a value over time; a second curve, `part` of the value, is drawn darker."""
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
    """Return a hash of a name that is equal in every process."""
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
    """Return the time axis of a figure: about five ticks at round values."""
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
    """Round up to the next of 1, 2, 2.5 or 5 times a power of ten."""
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((share * power for share in (1, 2, 2.5, 5) if share * power >= value), 10 * power)


def queue_steps(schedule: Schedule) -> Steps:
    """Return the number of waiting jobs over time."""
    changes = [(outcome.arrival_seconds, 1.0) for outcome in schedule.outcomes]
    for span in schedule.spans:
        changes.append((span.begin_seconds, -1.0))
        changes.append((span.end_seconds, 1.0))
    changes += [(outcome.end_seconds, -1.0) for outcome in schedule.outcomes]
    return _sum_up(changes)


def utilisation_steps(schedule: Schedule) -> Steps:
    """Return the share of all accelerators that jobs hold, over time."""
    changes = []
    for span in schedule.spans:
        share = sum(count for _, count in span.placement) / schedule.cluster.count
        changes += [(span.begin_seconds, share), (span.end_seconds, -share)]
    return _sum_up(changes)


def useful_steps(schedule: Schedule) -> Steps:
    """Return the utilisation weighted by each job's ratio of ideal time to running time, averaged over its life."""
    shares = {one.job: min(one.ideal_seconds / one.run_seconds, 1.0) for one in schedule.outcomes if one.run_seconds}
    changes = []
    for span in schedule.spans:
        share = shares.get(span.job, 0.0) * sum(count for _, count in span.placement) / schedule.cluster.count
        changes += [(span.begin_seconds, share), (span.end_seconds, -share)]
    return _sum_up(changes)


def power_steps(schedule: Schedule) -> Steps:
    """Return the watts of all accelerators, idle and busy, over time."""
    cluster = schedule.cluster
    rest = sum(cluster.type_of(name).idle_watts * count for name, count in cluster.count_of.items())
    changes = [(schedule.begin_seconds, rest)]
    for span in schedule.spans:
        kinds = [(cluster.type_of(cluster.machines[machine].accelerator), count) for machine, count in span.placement]
        watts = sum((kind.busy_watts * span.power_share - kind.idle_watts) * count for kind, count in kinds)
        changes += [(span.begin_seconds, watts), (span.end_seconds, -watts)]
    return _sum_up(changes)


def _sum_up(changes: Sequence[tuple[float, float]]) -> Steps:
    steps: list[tuple[float, float]] = []
    total = 0.0
    for moment, change in sorted(changes):
        total += change
        if steps and steps[-1][0] == moment:
            steps[-1] = moment, total
        else:
            steps.append((moment, total))
    return steps
