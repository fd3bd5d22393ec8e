"""Results of a training run, a search and a choice of placement, with figures as pandas data frames."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.flows.command.rendering import TextTable, html_table, text_table
from shunter.flows.python.frames import pandas_of

if TYPE_CHECKING:
    import pandas as pd

    from shunter.flows.python.recommender import Recommender
    from shunter.flows.train import TrainSummary
    from shunter.planner.decide import Decision
    from shunter.search.result import TuneResult

PART, TASK = "part", "task"


class Shown(ABC):
    """Result that a notebook shows as tables, like the output of the command."""

    @abstractmethod
    def _tables(self) -> Sequence[TextTable]:
        """Return the tables that show this result in a terminal or notebook."""

    def __repr__(self) -> str:
        """Return the tables as text."""
        return "\n\n".join(text_table(table) for table in self._tables())

    def _repr_html_(self) -> str:
        """Return the tables as HTML, which a notebook shows."""
        return "\n".join(html_table(table) for table in self._tables())


@dataclass(frozen=True, repr=False)
class Training(Shown):
    """Finished training run, as `shunter.train` returns it.

    Attributes:
        summary: All figures of the training, as `shunter train --json` prints them.

    Examples:
        >>> list(training.metrics.index)
        ['validation', 'test']
        >>> bool(training.metrics.loc["test", "auc"] > 0.5)
        True
        >>> training.model.predict(log.head(3)).shape
        (3,)
    """

    summary: "TrainSummary"

    @cached_property
    def model(self) -> "Recommender":
        """Loaded model: the version that the training registered, whether or not it is the champion."""
        from shunter.flows.python.recommender import Recommender

        registered = self.summary.registered
        return Recommender.load(f"{registered.name}/{registered.version}")

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        """Quality of the model by part (`validation`, `test`), and by task if there are several labels.

        Columns such as `auc_low` and `auc_high` are the bounds of the 95 % intervals on the test part.
        """
        result = self.summary.result
        first, *others = getattr(result, "tasks", ()) or ("",)
        rows = []
        for part in ("validation", "test"):
            metrics = getattr(result, part)
            rows += [{PART: part, TASK: first, **figures_of(metrics)}]
            rows += [{PART: part, TASK: task, **figures_of(metrics.others[task])} for task in others]
        for row in rows:
            for one in self.summary.quality:
                if row[PART] == "test" and one.task in ("", row[TASK]):
                    row |= {f"{one.name}_low": one.low, f"{one.name}_high": one.high}
        frame = pandas_of(rows)
        return frame.set_index([PART, TASK]) if others else frame.drop(columns=TASK).set_index(PART)

    @cached_property
    def baselines(self) -> "pd.DataFrame":
        """Baselines on the test part, each compared with the result."""
        return pandas_of([one.model_dump(mode="json") for one in self.summary.baselines])

    @cached_property
    def decision(self) -> "pd.DataFrame":
        """Placements that were compared, the chosen one first, with predicted time, energy and cost."""
        return pandas_of(self.summary.decision.table_rows())

    @cached_property
    def trials(self) -> "pd.DataFrame":
        """Settings that were tried, the best first."""
        from shunter.search.front import all_rows

        if self.summary.tuned is not None:
            return pandas_of(all_rows(self.summary.tuned))
        tried = sorted(self.summary.tried, key=lambda one: -one.validation.ndcg20)
        rows = [
            {
                "family": one.spec.family,
                "settings": one.spec.as_text(),
                **{f"validation_{name}": value for name, value in figures_of(one.validation).items()},
                "train_seconds": one.train_seconds,
            }
            for one in tried
        ]
        return pandas_of(rows)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the page that explains the training, as `shunter report` does, and return its path.

        Args:
            out: File, or folder of the file; `shunter-report-<id>.html` in the working folder if omitted.

        Raises:
            RequestError: The file cannot be written.
            TrackingError: The store cannot be read.
        """
        from shunter.flows.command.run_commands import write_report

        return write_report(self.summary.run_id, None if out is None else Path(out))[1]

    def _tables(self) -> Sequence[TextTable]:
        from shunter.flows.command.summary import figures_table, outcome_rows

        return figures_table(self.summary), TextTable((), outcome_rows(self.summary))


@dataclass(frozen=True, repr=False)
class Search(Shown):
    """Finished search, as `shunter.tune` returns it.

    Attributes:
        result: All settings with their losses and costs.
    """

    result: "TuneResult"

    @cached_property
    def trials(self) -> "pd.DataFrame":
        """Settings that were tried, the best first."""
        from shunter.search.front import all_rows

        return pandas_of(all_rows(self.result))

    @cached_property
    def front(self) -> "pd.DataFrame":
        """Pareto front of the settings in quality and cost."""
        from shunter.search.front import front_rows

        return pandas_of(front_rows(self.result))

    def _tables(self) -> Sequence[TextTable]:
        from shunter.flows.command.tables import front_table

        return (front_table(self.result),)


@dataclass(frozen=True, repr=False)
class Choice(Shown):
    """Chosen placement, as `shunter.select` returns it.

    Attributes:
        decision: Decision with its reason and all candidates.
    """

    decision: "Decision"

    @cached_property
    def table(self) -> "pd.DataFrame":
        """Placements that were compared, the chosen one first, with predicted time, energy and cost."""
        return pandas_of(self.decision.table_rows())

    def _tables(self) -> Sequence[TextTable]:
        from shunter.flows.command.tables import choice_rows, decision_table

        return decision_table(self.decision, every_row=False), TextTable((), choice_rows(self.decision))


def figures_of(metrics: Any) -> dict[str, float]:
    """Return metrics by name, including those that other Python packages have added."""
    if getattr(metrics, "rmse", None) is not None:
        return {**metrics.figures, "rows": metrics.rows, "mean": metrics.base_rate}
    figures = {name: value for name, value in asdict(metrics).items() if value is not None}
    figures.pop("others", None)
    return {**{name: value for name, value in figures.items() if name != "more"}, **figures.get("more", {})}
