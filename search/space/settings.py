"""What is searched: ranges of the architecture and of the learning rates, as wide as the data can feed."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from engine.config import Hyperparameters
from engine.data.dataset import Dataset
from models.names import AUTO, AUTO_FAMILIES
from models.registry import FAMILIES, model_spec
from models.spec import ModelSpec, nearest
from search.protocol import Factors, Parameters
from shunter.errors import RequestError
from shunter.frozen import Frozen
from shunter.requests import parse_task_weights

if TYPE_CHECKING:
    from optuna import Trial

Choice = int | float | str | None
Choices = dict[str, tuple[Choice, ...]]
TowerFields = tuple[tuple[str, ...], ...]
# What is searched beside where there are several tasks.
TASK_OPTIONS: Choices = {"task_tower_width": (None, 32)}


def _none(values: tuple[float, ...]) -> bool:
    return not values


class SearchSpace(Frozen):
    """Ranges of the search; every model in them can be written as a `ModelSpec` and `Hyperparameters`.

    Hidden layers halve from one to the next, so that a width and a number of layers describe an MLP.
    """

    families: tuple[str, ...] = Field(
        default=("dlrm",), min_length=1, description="Model families; of several the search chooses one too."
    )
    embedding_dims: tuple[int, ...] = Field(default=(4, 8, 16), description="Widths of the embeddings.")
    top_widths: tuple[int, ...] = Field(
        default=(64, 128, 256),
        description="First hidden width above interactions; empty for families without hidden layers.",
    )
    most_top_layers: int = Field(default=3, ge=1, description="Most hidden layers above the interactions.")
    bottom_widths: tuple[int, ...] = Field(
        default=(32, 64, 128), description="First hidden width over the dense features; empty where there are none."
    )
    most_bottom_layers: int = Field(default=2, ge=1, description="Most hidden layers over the dense features.")
    most_dropout: float = Field(default=0.5, ge=0, lt=1, description="Largest share of activations dropped.")
    dense_learning_rates: tuple[float, float] = Field(default=(3e-4, 1e-2), description="Range, searched in log scale.")
    embedding_learning_rates: tuple[float, float] = Field(
        default=(3e-3, 0.3), description="Range, searched in log scale."
    )
    options: Choices = Field(
        default={}, description="Values of each option that not all families have; drawn only for those that do."
    )
    task_weights: tuple[float, ...] = Field(
        default=(),
        description="Weights of the losses of several tasks; empty: all are 1. Not searched.",
        exclude_if=_none,
    )
    tower_partitions: dict[str, TowerFields] = Field(
        default={}, description="Ways to divide the fields into towers, by name; only for the family dmt."
    )

    @classmethod
    def for_dataset(cls, dataset: Dataset, family: str = "dlrm", task_weights: tuple[float, ...] = ()) -> Self:
        """Ranges for the size of the data: little data cannot feed wide layers, and they only cost time.

        The widest layer is the power of two next below the square root of the training rows, from 64 to 512, and the
        embeddings grow with the rows too; both ranges hold the defaults of `ModelSpec`. The family `auto` is all of
        `AUTO_FAMILIES`.
        """
        families = AUTO_FAMILIES if family == AUTO else (family,)
        known = [FAMILIES[name] for name in families]
        has_hidden_layers = any(one.has_hidden_layers for one in known)
        rows = dataset.splits["train"].rows
        widest = min(max(2 ** int(math.log2(max(rows, 1)) / 2), 128), 512)
        middle = 16 if rows >= 10_000_000 else 8 if rows >= 1_000_000 else 4
        return cls(
            families=families,
            options={
                **{name: values for family in families for name, values in family_options(family).items()},
                **(TASK_OPTIONS if dataset.features.tasks and has_hidden_layers else {}),
            },
            task_weights=task_weights,
            embedding_dims=known[0].dims if len(known) == 1 and known[0].dims else (middle, 2 * middle, 4 * middle),
            top_widths=tuple(width for width in (32, 64, 128, 256, 512) if widest // 4 <= width <= widest)
            if has_hidden_layers
            else (),
            bottom_widths=(32, 64, 128) if dataset.features.dense and has_hidden_layers else (),
        )

    def suggest(self, trial: "Trial") -> Parameters:
        """Draw a point of the space: of the options only those that its family has."""
        family = self.families[0]
        if len(self.families) > 1:
            family = trial.suggest_categorical("family", self.families)
        parameters: Parameters = {
            **({"family": family} if len(self.families) > 1 else {}),
            "embedding_dim": trial.suggest_categorical("embedding_dim", self.embedding_dims),
            **(
                {
                    "top_width": trial.suggest_categorical("top_width", self.top_widths),
                    "top_layers": trial.suggest_int("top_layers", 1, self.most_top_layers),
                    "dropout": trial.suggest_float("dropout", 0.0, self.most_dropout),
                }
                if self.top_widths
                else {}
            ),
            "dense_learning_rate": trial.suggest_float("dense_learning_rate", *self.dense_learning_rates, log=True),
            "embedding_learning_rate": trial.suggest_float(
                "embedding_learning_rate", *self.embedding_learning_rates, log=True
            ),
        }
        if self.bottom_widths:
            parameters["bottom_width"] = trial.suggest_categorical("bottom_width", self.bottom_widths)
            parameters["bottom_layers"] = trial.suggest_int("bottom_layers", 1, self.most_bottom_layers)
        for option, choices in self._options_of(family).items():
            parameters[option] = trial.suggest_categorical(option, choices)
        if self.tower_partitions:
            parameters["tower_partition"] = trial.suggest_categorical("tower_partition", list(self.tower_partitions))
        return parameters

    def identity(self, parameters: Parameters) -> Hashable:
        """Architecture and learning rates, see `search.protocol.Space`."""
        return self.build(parameters)

    def factors(self) -> Factors:
        """Every parameter with its values, see `search.protocol.Space`."""
        rates = {
            name: _along(*getattr(self, f"{name}s")) for name in ("dense_learning_rate", "embedding_learning_rate")
        }
        return {
            **({"family": self.families} if len(self.families) > 1 else {}),
            "embedding_dim": self.embedding_dims,
            **(
                {
                    "top_width": self.top_widths,
                    "top_layers": tuple(range(1, self.most_top_layers + 1)),
                    "dropout": tuple(share * self.most_dropout for share in (0.0, 0.2, 0.4, 0.6, 1.0)),
                }
                if self.top_widths
                else {}
            ),
            **rates,
            **(
                {"bottom_width": self.bottom_widths, "bottom_layers": tuple(range(1, self.most_bottom_layers + 1))}
                if self.bottom_widths
                else {}
            ),
            **self.options,
            **({"tower_partition": tuple(self.tower_partitions)} if self.tower_partitions else {}),
        }

    def defaults(self) -> list[Parameters]:
        """The points to try first: the default of each family."""
        return [self.default(family) for family in self.families]

    def default(self, family: str | None = None) -> Parameters:
        """The defaults of `ModelSpec` and `Hyperparameters`, moved into the ranges; of the first family or another."""
        family = family or self.families[0]
        spec, hyperparameters = model_spec(family), default_hyperparameters(family)
        parameters: Parameters = {
            **({"family": family} if len(self.families) > 1 else {}),
            "embedding_dim": nearest_choice(spec.embedding_dim, self.embedding_dims),
            **(
                {
                    "top_width": nearest_choice(spec.top_widths[0], self.top_widths),
                    "top_layers": min(len(spec.top_widths), self.most_top_layers),
                    "dropout": min(spec.dropout, self.most_dropout),
                }
                if self.top_widths
                else {}
            ),
            "dense_learning_rate": _into(hyperparameters.dense_learning_rate, self.dense_learning_rates),
            "embedding_learning_rate": _into(hyperparameters.embedding_learning_rate, self.embedding_learning_rates),
        }
        if self.bottom_widths:
            parameters["bottom_width"] = nearest_choice(spec.bottom_widths[0], self.bottom_widths)
            parameters["bottom_layers"] = min(len(spec.bottom_widths), self.most_bottom_layers)
        for option, choices in self._options_of(family).items():
            default = _as_choice(getattr(spec, option))
            parameters[option] = default if default in choices else choices[0]
        if self.tower_partitions:
            parameters["tower_partition"] = next(iter(self.tower_partitions))
        return parameters

    def build(self, parameters: Parameters) -> tuple[ModelSpec, Hyperparameters]:
        """The architecture and the learning rates at a point of the space."""
        bottom = _halving(parameters["bottom_width"], parameters["bottom_layers"]) if self.bottom_widths else ()
        family = parameters.get("family", self.families[0])
        spec = model_spec(
            family,
            embedding_dim=parameters["embedding_dim"],
            bottom_widths=bottom,
            top_widths=_halving(parameters["top_width"], parameters["top_layers"]) if self.top_widths else (),
            dropout=parameters.get("dropout", 0.0),
            **{option: _from_choice(family, option, parameters[option]) for option in self._options_of(family)},
            tower_fields=self.tower_partitions[parameters["tower_partition"]] if self.tower_partitions else (),
        )
        hyperparameters = replace(
            default_hyperparameters(family),
            dense_learning_rate=parameters["dense_learning_rate"],
            embedding_learning_rate=parameters["embedding_learning_rate"],
            task_weights=self.task_weights,
        )
        return spec, hyperparameters

    def _options_of(self, family: str) -> Choices:
        own = {option.name for option in fields(FAMILIES[family].spec)}
        return {option: choices for option, choices in self.options.items() if option in own}


def default_hyperparameters(family: str) -> Hyperparameters:
    """What a family is learned with where nothing is searched."""
    return Hyperparameters(**FAMILIES[family].learned_with)


def family_options(family: str) -> Choices:
    """What is searched of a family's own options; several names in one value are joined by a plus."""
    return {option: tuple(map(_as_choice, values)) for option, values in FAMILIES[family].ranges.items()}


def weights_of_tasks(text: str | None, tasks: Sequence[str]) -> tuple[float, ...]:
    """The weights of a request in the order of the tasks, 1 where it names none; empty where it names none at all.

    Raises:
        RequestError: It names a task that the data does not have.
    """
    given = parse_task_weights(text) if text else {}
    for name in given:
        if name not in tasks:
            raise RequestError(
                f"--task-weights names the label {name!r}: "
                + (nearest(name, tasks) if tasks else "this data has one label only, so leave the option out")
                + "."
            )
    return tuple(given.get(task, 1.0) for task in tasks) if given else ()


def _as_choice(value: Any) -> Choice:
    return "+".join(map(str, value)) if isinstance(value, tuple) else value


def _from_choice(family: str, option: str, choice: Choice) -> Any:
    is_tuple = isinstance(getattr(FAMILIES[family].spec, option), tuple)
    if not (is_tuple and isinstance(choice, str)):
        return choice
    return tuple(int(part) if part.isdigit() else part for part in choice.split("+"))


def _halving(width: int, layers: int) -> tuple[int, ...]:
    return tuple(max(1, width >> depth) for depth in range(layers))


def nearest_choice(value: int, choices: tuple[int, ...]) -> int:
    """The one of the choices that lies nearest to a value."""
    return min(choices, key=lambda choice: abs(choice - value))


def _along(low: float, high: float, points: int = 6) -> tuple[float, ...]:
    """Points from one end of a range to the other, evenly in log scale."""
    return tuple(min(high, low * (high / low) ** (step / (points - 1))) for step in range(points))


def _into(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])
