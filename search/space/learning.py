"""Search space of the training hyperparameters, their default values, and the regularised first point `HELD_BACK`."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from shunter.engine.config import Hyperparameters
from shunter.errors import RequestError
from shunter.model_families import MODEL_FAMILIES
from shunter.models.optimizers import searched_optimizers
from shunter.models.registry import family_of
from shunter.models.spec import nearest
from shunter.requests import parse_task_weights
from shunter.search.space.parameter import Choices

USUAL_BATCH_SIZE = 512  # batch size for which the default learning rates were chosen
# Number of bins of each numeric column for the first points of a search and for baselines. Chosen by hand on the
# validation parts of two samples of Criteo (12,000 and 8,000 training rows) with default settings. NE on each sample
# (mean of three seeds) without bins and with 8, 16, 48 bins:
# lr .842 .838 .837 .838 and .866 .863 .866 .865; dnn .850 .849 .861 .843 and .901 .876 .879 .873; dlrm .871 .851 .864
# .858 and .898 .875 .883 .883; dcnv2 .863 .843 .844 .845 and .904 .886 .882 .879.
FIRST_BINS = 8
# Values of the training hyperparameters of all families, besides the learning rates.
LEARNING_OPTIONS: Choices = {
    "embedding_l2": (0.0, 5e-5, 2e-4, 1e-3),
    "embedding_initial_bound": (None, 0.1, 0.03, 0.01),
    "weight_decay": (0.0, 1e-6, 1e-5, 1e-4),
    "learning_rate_schedule": ("constant", "plateau", "cosine"),
    "cosine_epochs": (3, 6),
}
WARMUP_EPOCHS = (0.0, 0.25, 1.0)  # choices of the wide space
# First point to try besides the default of a family: equally wide layers, regularised by batch normalisation and weight
# decay, with learning rates that fall to 0 within three passes. The best published deep click models have such layers
# (BARS, Zhu et al., 2022). Measured by hand with batches of 1,024, one thread and one seed: lowest validation NE and
# seconds, compared with the former point (three layers, vectors of 16, dropout 0.2, decay of 2e-4, plateau schedule in
# ten passes). Frappe: dlrm .191 in 12 s against .240 in 20 s, deepfm .241 in 26 s against .244 in 54 s. MovieLens-1M:
# deepfm .710 in 31 s against .712 in 131 s.
# From this number of training rows on, `HELD_BACK` is tried before the default. On 80,000 ratings of MovieLens-100K the
# default has NE .923 with dlrm and .941 with deepfm, `HELD_BACK` has 1.05 and .968. On 200,000 rows of Frappe the
# default has NE .324 with dlrm.
HELD_BACK_ROWS = 100_000
HELD_BACK: dict[str, Any] = {
    "embedding_dim": 32,
    "top_width": 400,
    "top_layers": 2,
    "top_shape": "flat",
    "dropout": 0.1,
    "batch_norm": True,
    "dense_learning_rate": 2e-3,
    "embedding_learning_rate": 0.1,
    "embedding_l2": 1e-3,
    "embedding_initial_bound": 0.03,
    "learning_rate_schedule": "cosine",
    "cosine_epochs": 3,
}


def rate_scale(batch_size: int) -> float:
    """Return the factor of the learning rates for a batch size: the root of its ratio to `USUAL_BATCH_SIZE`.

    The square-root rule (Malladi et al., NeurIPS 2022) was derived for Adam; this project uses it for row-wise Adagrad
    too. Below `USUAL_BATCH_SIZE` the factor is 1: in a test on Frappe with batches of 128, smaller rates only slowed
    learning.
    """
    return math.sqrt(max(1.0, batch_size / USUAL_BATCH_SIZE))


def usual_rates(batch_size: int) -> Hyperparameters:
    """Return the default training hyperparameters for a batch size, used if no learning rate is searched."""
    usual, scale = Hyperparameters(), rate_scale(batch_size)
    return replace(
        usual,
        dense_learning_rate=scale * usual.dense_learning_rate,
        embedding_learning_rate=scale * usual.embedding_learning_rate,
    )


def default_hyperparameters(family: str) -> Hyperparameters:
    """Return the default training hyperparameters of a family, used if nothing is searched."""
    return Hyperparameters(**family_of(family).learned_with)


def learning_options(families: Sequence[str], *, is_wide: bool = False) -> Choices:
    """Return `LEARNING_OPTIONS` plus the families' default values, and further options in the wide space.

    The optimizer is searched only if a family has hidden layers: other families have few weights besides their tables.
    """
    options = dict(LEARNING_OPTIONS)
    if is_wide and any(MODEL_FAMILIES.capability(family, "has_hidden_layers") for family in families):
        options["dense_optimizer"] = searched_optimizers()
    if is_wide:
        options["warmup_epochs"] = WARMUP_EPOCHS
    usual = [default_hyperparameters(family) for family in families]
    return {
        name: tuple(dict.fromkeys([*choices, *(getattr(rates, name) for rates in usual)]))
        for name, choices in options.items()
    }


def weights_of_tasks(text: str | None, tasks: Sequence[str]) -> tuple[float, ...]:
    """Return the task weights of a request in the order of the tasks, 1 for unnamed tasks; empty without weights.

    Raises:
        RequestError: The request names a task that the data does not have.
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
