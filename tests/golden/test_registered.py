"""Models that were registered before the move are loaded under the name of their loader, and score the same."""

from pathlib import Path

import numpy as np
import pytest

from tests.golden import registered

# In parts, so that nothing that renames modules renames what is already in registries.
FORMER_LOADER = ".".join(("tasks", "track", "serving"))
every_model = pytest.mark.parametrize("name", registered.MODELS)


@every_model
def test_a_recorded_model_names_the_former_loader(name: str) -> None:
    assert registered.loader_module(name) == FORMER_LOADER


@every_model
def test_a_model_registered_before_the_move_scores_the_same(name: str) -> None:
    scores = registered.scores_from_the_file(name)
    np.testing.assert_allclose(scores, registered.recorded_scores(name), rtol=1e-6)


@every_model
def test_a_champion_registered_before_the_move_is_trusted_and_scores_the_same(name: str, tmp_path: Path) -> None:
    scores = registered.scores_of_champion(name, tmp_path)
    np.testing.assert_allclose(scores, registered.recorded_scores(name), rtol=1e-6)
