"""What is searched of how families learn, what is usual, and the point that is held back."""

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

USUAL_BATCH_SIZE = 512  # for which the usual learning rates are meant
# Bins of each number with which a search begins, and baselines learn. By hand on the validation parts of two samples of
# Criteo (12,000 and 8,000 training rows), default settings, means of three seeds, NE without bins and with 8, 16, 48:
# lr .842 .838 .837 .838 and .866 .863 .866 .865; dnn .850 .849 .861 .843 and .901 .876 .879 .873; dlrm .871 .851 .864
# .858 and .898 .875 .883 .883; dcnv2 .863 .843 .844 .845 and .904 .886 .882 .879.
FIRST_BINS = 8
# What is tried of what all families learn with, beside the learning rates.
LEARNING_OPTIONS: Choices = {
    "embedding_l2": (0.0, 5e-5, 2e-4, 1e-3),
    "embedding_initial_bound": (None, 0.1, 0.03, 0.01),
    "weight_decay": (0.0, 1e-6, 1e-5, 1e-4),
    "learning_rate_schedule": ("constant", "plateau", "cosine"),
    "cosine_epochs": (3, 6),
}
WARMUP_EPOCHS = (0.0, 0.25, 1.0)  # choices of the wide space
# Another point to begin with, beside the default of a family: wide flat layers, held back by batch normalisation and
# decay, with rates that fall to 0 within three passes. The layers are what published results of deep click models have
# in common (BARS, Zhu et al., 2022). By hand with batches of 1,024, one thread and one seed, lowest validation NE and
# seconds of this point, and of the one before it (three layers, vectors of 16, a fifth dropped, decay of 2e-4, plateaus
# in ten passes): Frappe, dlrm .191 in 12 and .240 in 20, deepfm .241 in 26 and .244 in 54; MovieLens-1M, deepfm .710 in
# 31 and .712 in 131.
# Training rows from which it is tried before the default: of 80,000 ratings of MovieLens-100K the default has .923 with
# dlrm and .941 with deepfm, this point 1.05 and .968; of 200,000 rows of Frappe the default has .324 with dlrm.
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
    """By how much learning rates grow with the batch: with the root of its size (Malladi et al., NeurIPS 2022).

    That is the rule for Adam; row-wise Adagrad follows it here. Below the size for which the usual rates are meant they
    stay: tried by hand on Frappe with batches of 128, smaller ones only learned more slowly.

    Args:
        batch_size: Samples a step.
    """
    return math.sqrt(max(1.0, batch_size / USUAL_BATCH_SIZE))


def usual_rates(batch_size: int) -> Hyperparameters:
    """What is learned with where no rate is searched, at this batch size."""
    usual, scale = Hyperparameters(), rate_scale(batch_size)
    return replace(
        usual,
        dense_learning_rate=scale * usual.dense_learning_rate,
        embedding_learning_rate=scale * usual.embedding_learning_rate,
    )


def default_hyperparameters(family: str) -> Hyperparameters:
    """What a family is learned with where nothing is searched."""
    return Hyperparameters(**family_of(family).learned_with)


def learning_options(families: Sequence[str], *, is_wide: bool = False) -> Choices:
    """`LEARNING_OPTIONS`, with what is usual in the families among the choices; of the wide space more of them.

    A family without hidden layers has few weights beside its tables, and keeps the optimiser that it has.
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
