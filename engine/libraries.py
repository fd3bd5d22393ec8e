"""The libraries of a training, loaded before its time and energy count."""

import contextlib

from shunter.engine.config import Hyperparameters
from shunter.engine.loop.step import build_dense_optimizer
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features

SMALLEST = Features(dense=("number",), categorical=(CategoricalFeature(name="id", rows=2),))


def load_libraries(device: str) -> None:
    """Load what torch and the embedding kernels load when they are first used, which takes seconds; again it is quick.

    The first of several trainings in a process would pay for it, and look dearer than the others.

    Args:
        device: Device that trainings will run on.
    """
    with contextlib.suppress(Exception):  # of a device that does not work the training says more
        model = build_model(model_spec(embedding_dim=4, bottom_widths=(), top_widths=()), SMALLEST, device=device)
        build_dense_optimizer(model, Hyperparameters())
