"""Adaptation of the thread count during training: if steps leave their predicted interval, other counts are tried.

The training itself is measured: every trial step is a training step, and nothing else runs. The result is the same
except for rounding, because another number of threads sums in another order.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from shunter.hardware.types import Placement

WINDOW_STEPS, WINDOW_SECONDS = 20, 1.0
WINDOWS_OUTSIDE = 3  # consecutive windows: shorter disturbances (under three seconds) are ignored
TRIAL_STEPS, SETTLING_STEPS, TRIAL_ROUNDS = 12, 2, 2
HOPELESS = 3.0  # times the best median so far; on a crowded machine a step can take a hundred times as long
QUIET_STEPS = 2_000  # pause after a trial, doubled by each trial; a trial of few choices is below a tenth of it

Steps = Generator[int, float, list[float]]


@dataclass(frozen=True, kw_only=True)
class Change:
    """Result of one trial of other thread counts during training.

    Attributes:
        step: Number of training steps before the first step with another thread count.
        before: Placement before the trial.
        after: Placement after the trial; equal to `before` if nothing better was found.
        expected: Predicted interval of the step time in seconds; `observed` is outside of it.
        observed: Median step time before the trial, in seconds.
        tried: Measured step seconds at each placement.
    """

    step: int
    before: Placement
    after: Placement
    expected: tuple[float, float]
    observed: float
    tried: Mapping[Placement, float]

    def explain(self) -> str:
        """Return the result as one sentence for the user."""
        low, high = (f"{1e3 * bound:.3g}" for bound in self.expected)
        head = (
            f"After step {self.step} the steps took {1e3 * self.observed:.3g} ms, outside of the {low} to {high} ms "
            f"that were predicted"
        )
        if len(self.tried) == 1:
            return f"{head}; there is no other number of threads to try."
        tried = ", ".join(f"{placement.threads}: {1e3 * seconds:.3g} ms" for placement, seconds in self.tried.items())
        done = f"{self.after.threads} thread(s) replace {self.before.threads}"
        if self.after == self.before:
            done = f"{self.before.threads} thread(s) stay"
        return f"{head}, so other numbers of threads were tried ({tried}): {done}."


class Adaptation:
    """Controller that changes the thread count of a training run while it trains.

    Its `after_step` is passed to `shunter.engine.loop.trainer.train` as the argument `adapt`. The class reads no clock:
    all times are passed in.

    Args:
        placement: Placement at the start.
        expected: 90 % interval of the step time at the placement, in seconds.
        choices: Alternative placements in the order of their threads, including `placement`.
        decide: Called with the current placement and the step seconds of each tried placement; returns the best one.
        on_change: Called each time that other thread counts have been tried.
    """

    def __init__(
        self,
        placement: Placement,
        expected: tuple[float, float],
        choices: Sequence[Placement],
        decide: Callable[[Placement, Mapping[Placement, float]], Placement],
        on_change: Callable[[Change], None] | None = None,
    ) -> None:
        assert placement in choices, "the placement in force is one of the choices"
        self.placement, self.expected = placement, expected
        self.on_change = on_change
        self._choices, self._decide = list(choices), decide
        self._step = 0
        self._life = self._live()
        next(self._life)

    def after_step(self, seconds: float) -> int:
        """Record the wall-clock seconds of a step with its wait for the batch; return the threads of the next step."""
        self._step += 1
        return self._life.send(seconds)

    def _live(self) -> Generator[int, float, None]:
        quiet = QUIET_STEPS
        yield from self._window(WINDOW_STEPS)  # the first steps are warm-up
        while True:
            outside, observed = 0, 0.0
            while outside < WINDOWS_OUTSIDE:
                observed = median((yield from self._window(WINDOW_STEPS, WINDOW_SECONDS)))
                outside = 0 if self.expected[0] <= observed <= self.expected[1] else outside + 1
            yield from self._trial(observed)
            yield from self._window(quiet)
            quiet *= 2

    def _trial(self, observed: float) -> Generator[int, float, None]:
        """Alternate between the current and neighbouring placements; try further neighbours while they improve."""
        before, expected, step = self.placement, self.expected, self._step
        times: dict[Placement, list[float]] = {before: []}
        best, fresh = before, self._neighbours(before)
        tried: dict[Placement, float] = {before: observed}
        while fresh:
            for _ in range(TRIAL_ROUNDS):
                for placement in (before, *fresh):
                    self.placement = placement
                    hopeless = HOPELESS * min(map(median, filter(None, times.values())), default=observed)
                    taken = yield from self._window(SETTLING_STEPS + 1)
                    if taken[-1] <= hopeless:
                        taken += yield from self._window(TRIAL_STEPS - len(taken))
                    times.setdefault(placement, []).extend(taken[SETTLING_STEPS:])
            tried = {placement: median(taken) for placement, taken in times.items()}
            best = self._decide(before, tried)
            fresh = [placement for placement in self._neighbours(best) if placement not in times]
        self.placement = best
        stretch = (expected[1] / expected[0]) ** 0.5  # the interval stays as wide on a logarithmic scale
        self.expected = tried[best] / stretch, tried[best] * stretch
        if self.on_change is not None:
            self.on_change(
                Change(step=step, before=before, after=best, expected=expected, observed=observed, tried=tried)
            )

    def _neighbours(self, placement: Placement) -> list[Placement]:
        place = self._choices.index(placement)
        return [self._choices[position] for position in (place - 1, place + 1) if 0 <= position < len(self._choices)]

    def _window(self, steps: int, seconds: float = 0.0) -> Steps:
        """Return the seconds of each of the next steps: at least `steps` steps, and at least `seconds` in total."""
        taken: list[float] = []
        elapsed = 0.0
        while len(taken) < steps or elapsed < seconds:
            taken.append((yield self.placement.threads))
            elapsed += taken[-1]
        return taken
