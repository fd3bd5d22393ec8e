"""Differentiable architecture search as a search method: train a super-net, then sample architectures from it.

The default architecture is tried first, so that the result is never worse than the default. The super-net is trained at
the next request for a point (`supernet_search`). If NE is weighed against a cost, it is trained at increasing weights
of the cost. Architectures are sampled at each weight, and the one with the largest expected gain of the front is tried
(`FrontPool`). Each sampled architecture is trained from scratch like any other trial, because the weights of the
super-net are shared and mixtures score better than any single architecture. The results of trials are used too: if NE
alone counts, a linear model of the choices, fitted to the trials, selects among several samples.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from shunter.errors import RequestError
from shunter.extensions.nas.architecture_search import Learned, SupernetSchedule
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.extensions.nas.supernet.costs import cost_of
from shunter.extensions.nas.supernet.space import INPUT, INTERACTION, SKIP, Coding, dim_choice, draw, share_choice
from shunter.extensions.nas.supernet_search import (
    RESULT,
    architecture_of,
    learned_stages,
    point_of,
    supernet_costs,
    supernet_space,
)
from shunter.models.spec import ModelSpec
from shunter.pareto import hypervolume
from shunter.search.context import SearchContext
from shunter.search.protocol import BudgetLeft, Outcome, Parameters
from shunter.search.reward import scores
from shunter.tracking.reports import log_files
from shunter.tracking.runs import open_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Theta = Mapping[str, Sequence[float]]
DRAWS = 30  # attempts per new architecture before the temperature rises
FEWEST_TOLD = 6  # trials before the linear model is used
CANDIDATES = 8  # new architectures among which the linear model selects
WARMER = (1.0, 1.5, 2.0, 4.0, 8.0, 1000.0)  # temperatures of the draws; the last is nearly uniform
POOL = 96  # number of architectures sampled at a time
EVEN_SHARE = 0.25  # share of them that is sampled uniformly, in case theta is wrong
EVENLY = 1000.0  # temperature of nearly uniform sampling
POOL_DRAWS = 3  # draws per architecture of the pool: many are duplicates
SHRINKAGE = 1.0  # of the linear model: a value seen in one trial gets half of its effect
FOLDER, PICTURE = "supernet", "theta.png"
DPI = 130
INCHES_A_ROW = 0.13
NE_COLOUR, COST_COLOUR = "#1f4e79", "#b5541c"


class FrontPool:
    """Architectures sampled from the stages of a super-net, each with its cost.

    Their NE is predicted from the trials alone, by a linear model of the choices. The NE with the super-net's shared
    weights is not used. On some data it predicts little (`benchmarks/search/one_shot.py`). It added two thirds to the
    search time, and gave no larger fronts on Frappe. The method was chosen on Frappe. On MovieLens-1M, fronts of 16
    trials have 1.14 times the area of fronts from architectures sampled at each cost weight in turn.

    Args:
        context: Context of a search that weighs NE against a cost.
        space: Search space of the context.
        stages: Learned theta at each weight of the cost.
    """

    def __init__(
        self,
        context: SearchContext,
        space: ArchitectureSpace,
        stages: Sequence[Learned],
        schedule: SupernetSchedule | None = None,
    ) -> None:
        self._context, self._space, self._stages = context, space, stages
        self._costs = supernet_costs(context, schedule)
        self._coding = Coding(supernet_space(space), context.dataset.features)
        self._points: dict[ModelSpec, Parameters] = {}
        self._log_costs: list[float] = []
        self._pools = 0

    def best(self, asked: Mapping[ModelSpec, Parameters], told: Mapping[ModelSpec, Outcome]) -> Parameters | None:
        """Return the architecture with the largest expected area added to the front; None if there is no new one.

        Args:
            asked: Architectures that were requested, trained or running.
            told: Results of completed trials.
        """
        while self._pools < 1 + len(asked) // (POOL // 2):
            self._add(self._drawn(self._pools))
            self._pools += 1
        self._add(asked)
        numbers = {spec: number for number, spec in enumerate(self._points)}
        open_ones = [number for spec, number in numbers.items() if spec not in asked]
        if not open_ones:
            return None
        came_to: dict[int, tuple[float, float]] = {}
        for spec, outcome in told.items():
            cost = outcome.costs.get(self._context.cost) if self._context.cost else None
            if outcome.loss is not None and cost:
                came_to[numbers[spec]] = outcome.loss, math.log(cost)
        expected = self._expected(came_to)
        known = [*came_to.values(), *(tuple(expected[numbers[spec]].tolist()) for spec in asked if spec not in told)]
        reference = tuple(np.max([*expected.tolist(), *came_to.values()], axis=0).tolist())
        areas = [hypervolume([*known, tuple(expected[number].tolist())], reference) for number in open_ones]
        return list(self._points.values())[open_ones[int(np.argmax(areas))]]

    def _expected(self, came_to: Mapping[int, tuple[float, float]]) -> np.ndarray:
        """Predict loss and log cost of each architecture, `[architectures, 2]`; without trials all losses are equal.

        The predicted cost is that of the super-net's cost table, corrected by the trials.
        """
        log_costs = np.array(self._log_costs)
        said = np.column_stack([np.zeros(len(log_costs)), log_costs])
        if not came_to:
            return said
        tried, encoded = list(came_to), one_hot(list(self._points.values()), self._space)
        spread = log_costs.std() or 1.0
        columns = np.column_stack([(log_costs - log_costs.mean()) / spread, encoded])
        wrong = np.array(list(came_to.values())) - said[tried]
        return said + np.column_stack([ridge(encoded, tried, wrong[:, 0]), ridge(columns, tried, wrong[:, 1])])

    def _drawn(self, pool: int) -> dict[ModelSpec, Parameters]:
        """Sample `POOL` different architectures, seeded by `pool`; return fewer if most samples are duplicates."""
        generator = torch.Generator().manual_seed(self._context.seed * 1_000_003 + pool)
        found: dict[ModelSpec, Parameters] = {}
        for turn in range(POOL_DRAWS * POOL):
            stage = self._stages[turn % len(self._stages)]
            is_even = turn * EVEN_SHARE % 1.0 < EVEN_SHARE
            picked = draw(stage.theta, generator, EVENLY if is_even else 1.0)
            point = point_of(self._coding.decode(picked), self._space)
            found.setdefault(self._space.build(point)[0], point)
            if len(found) == POOL:
                break
        return found

    def _add(self, points: Mapping[ModelSpec, Parameters]) -> None:
        """Add sampled architectures, with their costs, to the pool."""
        assert self._costs is not None, "a cost is weighed"
        for spec, point in points.items():
            if spec not in self._points:
                self._points[spec] = point
                cost = cost_of(architecture_of(point, self._space), self._coding, self._costs)
                self._log_costs.append(math.log(cost))


def one_hot(points: Sequence[Parameters], space: ArchitectureSpace) -> np.ndarray:
    """Return the one-hot encoding of points, `[points, values of all factors]`."""
    factors = space.factors()
    return np.array(
        [[point[name] == value for name, values in factors.items() for value in values] for point in points], float
    )


def ridge(columns: np.ndarray, tried: Sequence[int], values: np.ndarray) -> np.ndarray:
    """Predict the values of all rows, `[rows]`, by a ridge regression on the tried rows; the mean is not shrunk."""
    centred = columns - columns[tried].mean(0)
    of_tried, penalty = centred[tried], SHRINKAGE * np.eye(columns.shape[1])
    weights = np.linalg.solve(of_tried.T @ of_tried + penalty, of_tried.T @ (values - values.mean()))
    return values.mean() + centred @ weights


class Dnas:
    """Search method that samples architectures from a super-net (Krishna et al., arXiv 2110.14812), each once.

    Args:
        schedule: Schedule of the super-net; None for the default.

    Raises:
        RequestError: The space is not one of architectures.
    """

    def __init__(self, context: SearchContext, schedule: SupernetSchedule | None = None) -> None:
        if not isinstance(context.space, ArchitectureSpace):
            raise RequestError(
                "The search method dnas needs the search space `architecture`: choose this space, or another method."
            )
        self._context, self._space, self._schedule = context, context.space, schedule
        self._coding = Coding(supernet_space(self._space), context.dataset.features)
        self._stages: list[Learned] = []
        self._seen: dict[ModelSpec, Parameters] = {}
        self._pool: FrontPool | None = None
        self._told: list[tuple[Parameters, Outcome]] = []

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """Return an architecture that was not tried before; None if sampling finds no new one."""
        if self._seen and not self._stages:
            self._stages = learned_stages(self._context, left, self._schedule)
            if self._context.run_id is not None:
                publish_supernet(self._stages, self._space, self._context.directory, self._context.run_id)
        if not self._seen:
            chosen = self._space.defaults()[0]
        else:
            chosen = self._best_of_samples() if self._context.cost is None else self._best_of_front()
        if chosen is not None:
            self._seen[self._space.build(chosen)[0]] = chosen
        return chosen

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Record the outcome of an architecture, so that it is not sampled again."""
        self._seen[self._space.build(parameters)[0]] = parameters
        self._told.append((parameters, outcome))

    def _best_of_front(self) -> Parameters | None:
        """Return the architecture with the largest expected gain of the front of NE and cost."""
        if self._pool is None:
            self._pool = FrontPool(self._context, self._space, self._stages, self._schedule)
        told = {self._space.build(parameters)[0]: outcome for parameters, outcome in self._told}
        return self._pool.best(self._seen, told)

    def _best_of_samples(self) -> Parameters | None:
        """Return a new architecture, the one with the least NE by a ridge regression once there are enough trials."""
        generator = torch.Generator().manual_seed(self._context.seed * 1_000_003 + len(self._seen) - 1)
        has_say = len(self._told) >= FEWEST_TOLD
        candidates = self._new_ones(self._stages[0].theta, generator, CANDIDATES if has_say else 1)
        if not candidates or not has_say:
            return candidates[0] if candidates else None
        tried = one_hot([point for point, _ in self._told], self._space)
        values = scores([outcome for _, outcome in self._told])
        penalty = SHRINKAGE * np.eye(tried.shape[1])
        weights = np.linalg.solve(tried.T @ tried + penalty, tried.T @ values)
        return candidates[int(np.argmin(one_hot(candidates, self._space) @ weights))]

    def _new_ones(self, theta: Theta, generator: torch.Generator, most: int) -> list[Parameters]:
        """Return untried architectures; the sampling temperature rises until at least one is found."""
        found: dict[ModelSpec, Parameters] = {}
        for temperature in WARMER:
            for _ in range(DRAWS):
                architecture = self._coding.decode(draw(theta, generator, temperature))
                parameters = point_of(architecture, self._space)
                spec, _ = self._space.build(parameters)
                if spec not in self._seen:
                    found.setdefault(spec, parameters)
                if len(found) == most:
                    break
            if found:
                break
        return list(found.values())


def publish_supernet(stages: Sequence[Learned], space: ArchitectureSpace, directory: Path, run_id: str) -> None:
    """Log the figure, the candidate probabilities of every round and the results to the search's run.

    Args:
        stages: Stages of the training.
        space: Search space.
        directory: Folder of the super-net's results, in which the figure is drawn too.
        run_id: MLflow run of the search.

    Raises:
        TrackingError: The tracking store fails.
    """
    rounds = [(stage.weight, report) for stage in stages for report in stage.rounds]
    if not rounds:
        return
    series = {
        "supernet.cost_weight": [weight for weight, _ in rounds],
        "supernet.temperature": [report.temperature for _, report in rounds],
        "supernet.theta_ne": [report.theta_ne for _, report in rounds],
        "supernet.expected_cost": [report.cost for _, report in rounds if report.cost is not None],
    }
    open_run(run_id).log_series({name: values for name, values in series.items() if values})
    picture = directory / PICTURE
    supernet_figure(stages, space).savefig(picture, dpi=DPI)
    log_files(run_id, [picture, directory / RESULT], FOLDER)


def supernet_figure(stages: Sequence[Learned], space: ArchitectureSpace) -> "Figure":
    """Plot the mixture's NE and expected cost above the probability of every candidate, round by round."""
    from matplotlib.figure import Figure

    rounds = [(stage.weight, report) for stage in stages for report in stage.rounds]
    names, rows = _rows(stages, space)
    figure = Figure(figsize=(8.0, 3.0 + INCHES_A_ROW * len(names)), layout="constrained")
    lines, picture = figure.subplots(2, 1, height_ratios=[2.0, INCHES_A_ROW * len(names)], sharex=True)
    numbers = np.arange(len(rounds))
    lines.plot(numbers, [report.theta_ne for _, report in rounds], "o-", color=NE_COLOUR)
    lines.set_ylabel("NE of the mixture\non the rows of theta", color=NE_COLOUR)
    costs = [report.cost for _, report in rounds]
    if None not in costs:
        beside = lines.twinx()
        beside.plot(numbers, costs, "s--", color=COST_COLOUR)
        beside.set_ylabel("expected cost", color=COST_COLOUR)
        beside.set_yscale("log")
    shown = picture.imshow(rows, aspect="auto", vmin=0, vmax=1, cmap="Blues", interpolation="nearest")
    picture.set_yticks(range(len(names)), names, fontsize=6)
    picture.set_xticks(numbers, [f"{weight:g}" for weight, _ in rounds])
    picture.set_xlabel("round, by the NE that a factor e of cost is worth")
    figure.colorbar(shown, ax=picture, label="probability", shrink=0.6)
    return figure


def _rows(stages: Sequence[Learned], space: ArchitectureSpace) -> tuple[list[str], np.ndarray]:
    """Return the labels of the candidates of every choice, and their probabilities: `[candidates, rounds]`."""
    reports = [report for stage in stages for report in stage.rounds]
    labels = {choice: of for choice, of in _labels(space).items() if len(of) > 1}
    fields = {
        of(table): f"{kind} {name}"
        for table, name in enumerate(space.tables)
        for kind, of in (("table", dim_choice), ("rows of", share_choice))
    }
    names = [f"{fields.get(choice, choice)}: {label}" for choice, of in labels.items() for label in of.values()]
    rows = [
        [report.probabilities[choice][number] for report in reports] for choice, of in labels.items() for number in of
    ]
    return names, np.array(rows)


def _labels(space: ArchitectureSpace) -> dict[str, dict[int, str]]:
    """Return the name of each candidate of each choice, by its index."""
    choices = supernet_space(space)
    coding = Coding(choices, space.features)
    paths = [*((coding.bottom,) if coding.bottom else ()), coding.top]
    sources = {INPUT: "from the input", SKIP: "left out"}
    names = {
        name: [sources.get(width, f"from {width}") for width in widths]
        for mlp in paths
        for name, widths in mlp.candidates.items()
    }
    names[INTERACTION] = list(choices.interactions)
    for table in range(len(choices.dims)):
        names[dim_choice(table)] = [f"{width} wide" for width in choices.dims[table]]
        names[share_choice(table)] = [f"{share:g} of the rows" for share in choices.shares[table]]
    return {name: dict(enumerate(of)) for name, of in names.items()}
