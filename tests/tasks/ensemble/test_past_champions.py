"""Members of past champions: those of the same data in the same split, as they were registered."""

from pathlib import Path

import pytest

from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.hardware.types import Placement
from shunter.ingestion.request import ingest_request
from shunter.models.ensemble import Ensemble
from shunter.models.registry import build_model, model_spec
from shunter.requests import TrainRequest
from shunter.tasks.ensemble.past_champions import past_champions
from shunter.tracking.registry.models import register_model
from shunter.tracking.registry.versions import champions_of, roll_back
from shunter.tracking.runs import start_run_tree

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
SPEC = model_spec(embedding_dim=4, bottom_widths=(), top_widths=(8,))


@pytest.mark.usefixtures("tracking_root")
def test_members_of_champions_of_the_same_data_are_found_and_no_others(tmp_path: Path) -> None:
    def registered(rows: int, members: int, seed: int) -> Dataset:
        request = TrainRequest(data=f"synthetic:{rows}")
        dataset, _ = ingest_request(request)
        models = [build_model(SPEC, dataset.features, seed=seed + number).eval() for number in range(members)]
        result = models[0] if members == 1 else Ensemble(models, [1.0] * members).eval()
        save_model(result, tmp_path / f"made-{seed}")
        register_model(start_run_tree(request, dataset), dataset, tmp_path / f"made-{seed}", "shop", metrics={})
        return dataset

    dataset = registered(600, 2, seed=0)
    registered(700, 1, seed=10)  # other rows
    assert registered(600, 1, seed=20) == dataset
    found = past_champions("shop", dataset, PLACEMENT, Execution(), tmp_path / "champions")
    assert [one.name for one in found.members] == ["champion-3-0", "champion-1-0", "champion-1-1"]
    assert found.left_out == [2]
    assert "of version 1, 3." in found.sentence
    assert "Version 2 " in found.sentence
    first = load_model(found.members[1].directory).state_dict()
    made = load_model(tmp_path / "made-0").state_dict()
    assert all((first[name] == made[f"members.0.{name}"]).all() for name in first)
    assert [one.version for one in champions_of("shop", 2)] == [3, 2]
    roll_back("shop")
    assert [one.version for one in champions_of("shop", 5)] == [2, 1]
    assert past_champions("nothing", dataset, PLACEMENT, Execution(), tmp_path / "none").members == []
    request = TrainRequest(data="synthetic:600")  # one that keeps members of the first and the third
    models = [load_model(one.directory) for one in found.members[:2]]
    kept = Ensemble([one for one in models if not isinstance(one, Ensemble)], [1.0, 1.0]).eval()
    save_model(kept, tmp_path / "made-30")
    register_model(start_run_tree(request, dataset), dataset, tmp_path / "made-30", "shop", metrics={})
    again = past_champions("shop", dataset, PLACEMENT, Execution(), tmp_path / "again")
    assert [one.name for one in again.members] == ["champion-4-0", "champion-4-1", "champion-1-1"]
    assert again.left_out == [2], "what is there already is not left out"
