"""Result of a super-net as a figure and in MLflow: each candidate's probability over time, with NE and cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shunter.extensions.nas.architecture_search import Learned
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.extensions.nas.supernet.space import INPUT, INTERACTION, SKIP, Coding, dim_choice, share_choice
from shunter.extensions.nas.supernet_search import RESULT, supernet_space
from shunter.tracking.reports import log_files
from shunter.tracking.runs import open_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER, PICTURE = "supernet", "theta.png"
DPI = 130
INCHES_A_ROW = 0.13
NE_COLOUR, COST_COLOUR = "#1f4e79", "#b5541c"


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
