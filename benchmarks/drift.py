"""Whether a machine that stays as it is raises alarms, and how soon one that becomes slower is noticed: simulated.

A simulated machine runs one job a day. Each run wants probes of eight out of a dozen configurations, takes those of the
last week from earlier runs as the product does, measures the others, and trains three times. A run shifts all its steps
alike (10 % or 5 %, drawn from a normal, a Student's t or a Laplace distribution of that standard deviation), and each
step has 5 % of its own. What is judged is the product's own reading of past runs, `History.of`, as each run begins. No
constant of it was set on these series.

`false_alarm_share` is the share of steady days on which a change is reported that the day before did not know;
`standing_alarm_share` that of days on which any is reported. `runs_to_notice` is the median number of runs after a
change of 1.3 x until it is reported, `noticed_within_3` the share of machines of which it is within three. `kept_share`
is the share of a steady machine's measurements that later choices learn from. Figures are at 10 % between days, the
mean of the three distributions, unless their name says otherwise. `runs_to_notice_hourly` is that of hourly runs after
a change of 2 x, on one day. Rivals: every step taken for itself, by the same sums; and a fixed limit, which calls the
last day changed when its median is 20 % off the mean of the days before.

    python -m benchmarks.drift
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from benchmarks.report import parse_arguments, publish, table
from shunter.hardware.cost.residual import StepObservation
from shunter.hardware.types import Placement, Workload
from shunter.planner.history import History
from shunter.planner.history.drift import inspect
from shunter.planner.predict.observe import LONGEST_KNOWN
from shunter.tracking.convention import SCHEMA_VERSION
from shunter.tracking.history import TrackedRun
from shunter.tracking.learning import step_tags

CONFIGURATIONS, WANTED_PROBES, TRAININGS = 12, 8, 3
WITHIN = 0.05
DAYS, BEFORE, AFTER = 30, (6, 15), 8
RATIO, HOURLY_RATIO, FIXED_LIMIT = 1.3, 2.0, 0.2
DAILY, HOURLY = timedelta(days=1), timedelta(hours=1)
HOURLY_BEFORE = (3, 6)
SEEDS, QUICK_SEEDS = tuple(range(6)), tuple(range(2))
BEGAN = datetime(2026, 1, 1, 3, tzinfo=UTC)
WORKLOAD = Workload(
    matmul_flops_per_sample=1e6,
    lookups_per_sample=26,
    lookup_bytes_per_sample=1664,
    input_bytes_per_sample=264,
    parameter_bytes=10**7,
    optimizer_bytes=10**7,
    activation_bytes_per_sample=4096,
    operators_per_step=100,
    train_samples=80_000,
)
DRAWS: dict[str, Callable[[np.random.Generator], float]] = {
    "normal": lambda random: float(random.standard_normal()),
    "student": lambda random: float(random.standard_t(4)) / 2**0.5,
    "laplace": lambda random: float(random.laplace(0, 0.5**0.5)),
}

Run = list[tuple[int, float]]
"""Configuration and logarithm of the step time over the prediction, of each step that a run measured.

A configuration from `CONFIGURATIONS` on is a training at the first one.
"""


def machine(
    kind: str, between: float, count: int, seed: int, *, since: int | None = None, every: timedelta = DAILY
) -> list[Run]:
    """The runs of a simulated machine, slower from run `since` on: by `RATIO`, hourly by `HOURLY_RATIO`."""
    random = np.random.default_rng([seed, count, round(1000 * between)])
    own = 0.3 * random.standard_normal(CONFIGURATIONS + 1)
    slower, found = np.log(RATIO if every == DAILY else HOURLY_RATIO), []
    probed: dict[int, int] = {}
    for number in range(count):
        shift = between * DRAWS[kind](random) + (slower if since is not None and number >= since else 0.0)
        wanted = random.choice(CONFIGURATIONS, WANTED_PROBES, replace=False).tolist()
        ran = [name for name in wanted if name not in probed or (number - probed[name]) * every >= LONGEST_KNOWN]
        probed |= dict.fromkeys(ran, number)
        ran += [CONFIGURATIONS] * TRAININGS
        found.append([(int(name), float(own[name] + shift + WITHIN * random.standard_normal())) for name in ran])
    return found


def _tracked(number: int, run: Run, every: timedelta) -> TrackedRun:
    ended = BEGAN + number * every
    steps = [
        StepObservation(
            workload=WORKLOAD,
            placement=Placement(accelerator="cpu", threads=1 + name % CONFIGURATIONS, precision="fp32", batch_size=512),
            accelerator_model="simulated",
            host="simulated",
            machine="simulated",
            predicted_seconds=0.01,
            measured_seconds=0.01 * float(np.exp(ratio)),
            measured_at=ended.isoformat(timespec="seconds"),
            steps=None if name == CONFIGURATIONS else 20,
        )
        for name, ratio in run
    ]
    return TrackedRun(
        run_id=f"{number:032x}",
        kind="select",
        parent_run_id=None,
        status="FINISHED",
        started_at=ended.timestamp() - 60,
        ended_at=ended.timestamp(),
        params={},
        metrics={},
        tags={"schema.version": SCHEMA_VERSION, **step_tags(steps)},
    )


def by_history(runs: Sequence[Run], every: timedelta = DAILY) -> tuple[int, bool, float]:
    """Changes that the product reports, whether the last one is a slow-down, and the share of steps it learns from."""
    tracked = [_tracked(number, run, every) for number, run in enumerate(runs)]
    history = History.of(tracked, (BEGAN + len(runs) * every).timestamp())
    is_slower = bool(history.drifts) and history.drifts[-1].step_ratio > 1.1
    return len(history.drifts), is_slower, len(history.steps) / sum(map(len, runs))


def by_steps(days: Sequence[Run]) -> tuple[int, bool, float]:
    """The same sums, where every step counts for itself."""
    flat = [step for day in days for step in day]
    levels = inspect([ratio for _, ratio in flat], [name for name, _ in flat]).levels
    is_slower = len(levels) > 1 and levels[-1].log_ratio - levels[-2].log_ratio > 0.1
    return len(levels) - 1, is_slower, 1.0


def by_limit(days: Sequence[Run]) -> tuple[int, bool, float]:
    """The last day against the mean of those before, by a fixed limit."""
    before: dict[int, list[float]] = {}
    for day in days[:-1]:
        for name, ratio in day:
            before.setdefault(name, []).append(ratio)
    shifts = [ratio - float(np.mean(before[name])) for name, ratio in days[-1] if name in before]
    shift = float(np.median(shifts)) if shifts else 0.0
    return int(abs(np.expm1(shift)) > FIXED_LIMIT), np.expm1(shift) > FIXED_LIMIT, 1.0


RULES = {"shunter": by_history, "every step for itself": by_steps, "a fixed limit": by_limit}


def judge(
    rule: Callable[[Sequence[Run]], tuple[int, bool, float]], kind: str, between: float, seeds: Sequence[int]
) -> dict[str, float]:
    """False alarms of steady machines, and how soon slow ones are noticed."""
    new, standing, total, kept = 0, 0, 0, []
    for seed in seeds:
        days, known, share = machine(kind, between, DAYS, seed), 0, 1.0
        for until in range(2, DAYS + 1):
            changes, _, share = rule(days[:until])
            new, standing, total = new + (changes > known), standing + (changes > 0), total + 1
            known = changes
        kept.append(share)
    runs = []
    for seed in seeds:
        for before in BEFORE:
            days = machine(kind, between, before + AFTER, 1_000 + seed, since=before)
            seen = (after for after in range(1, AFTER + 1) if rule(days[: before + after])[1])
            runs.append(next(seen, AFTER + 1))
    return {
        "false_alarm_share": new / total,
        "standing_alarm_share": standing / total,
        "runs_to_notice": float(np.median(runs)),
        "noticed_within_3": float(np.mean([count <= 3 for count in runs])),
        "kept_share": float(np.mean(kept)),
    }


def hourly_runs_to_notice(between: float, seeds: Sequence[int]) -> float:
    """Median number of hourly runs until the product reports a change of 2 x; the mean of the distributions."""
    medians = []
    for kind in DRAWS:
        counts = []
        for seed in seeds:
            for before in HOURLY_BEFORE:
                runs = machine(kind, between, before + AFTER, 1_000 + seed, since=before, every=HOURLY)
                seen = (after for after in range(1, AFTER + 1) if by_history(runs[: before + after], HOURLY)[1])
                counts.append(next(seen, AFTER + 1))
        medians.append(float(np.median(counts)))
    return float(np.mean(medians))


def main() -> None:
    """Judge all rules and publish."""
    arguments = parse_arguments(__doc__)
    seeds = QUICK_SEEDS if arguments.quick else SEEDS
    details: dict[str, Any] = {
        name: {f"{kind} {between:.0%}": judge(rule, kind, between, seeds) for kind in DRAWS for between in (0.05, 0.10)}
        for name, rule in RULES.items()
    }

    def mean(name: str, between: str, key: str) -> float:
        return float(np.mean([found[key] for setting, found in details[name].items() if setting.endswith(between)]))

    keys = ("false_alarm_share", "standing_alarm_share", "runs_to_notice", "noticed_within_3", "kept_share")
    table(
        "A machine from day to day, 10 % between days (simulated)",
        ("rule", *keys),
        [(name, *(f"{mean(name, ' 10%', key):.3f}" for key in keys)) for name in RULES],
    )
    figures = {key: mean("shunter", " 10%", key) for key in keys}
    figures["runs_to_notice_hourly"] = hourly_runs_to_notice(0.10, seeds)
    figures["noticed_within_3_at_5"] = mean("shunter", " 5%", "noticed_within_3")
    figures["false_alarm_share_every_step"] = mean("every step for itself", " 10%", "false_alarm_share")
    figures |= {f"{key}_fixed": mean("a fixed limit", " 10%", key) for key in keys[:4]}
    publish("drift", figures, details, seeds=seeds, quick=arguments.quick)


if __name__ == "__main__":
    main()
