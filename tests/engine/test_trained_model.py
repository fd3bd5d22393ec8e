"""Architectures within results come back from JSON, also from that of earlier versions."""

import pytest
from pydantic import BaseModel, ValidationError

from shunter.engine.trained_model import AnyGraphSpec, AnyModelSpec
from shunter.model_families import MODEL_FAMILIES, RANKING_MODELS
from shunter.models.graph import graph_spec
from shunter.models.registry import family_of, model_spec


class Clicks(BaseModel):
    spec: AnyModelSpec


class Ranking(BaseModel):
    spec: AnyGraphSpec


@pytest.mark.parametrize("family", MODEL_FAMILIES.names)
def test_a_spec_keeps_its_family_and_its_options(family: str) -> None:
    kept = Clicks(spec=model_spec(family, embedding_dim=24, top_widths=(5,)))
    assert Clicks.model_validate_json(kept.model_dump_json()) == kept
    assert type(Clicks.model_validate_json(kept.model_dump_json()).spec) is family_of(family).spec


@pytest.mark.parametrize("family", RANKING_MODELS.names)
def test_a_graph_spec_keeps_its_family_and_its_options(family: str) -> None:
    kept = Ranking(spec=graph_spec(family, layers=4))
    assert Ranking.model_validate_json(kept.model_dump_json()) == kept


def test_what_was_written_with_the_options_of_all_families_is_read() -> None:
    written = (
        '{"spec": {"family": "dcnv2", "embedding_dim": 8, "bottom_widths": [4], "top_widths": [], "dropout": 0.1,'
        ' "batch_norm": true, "task_tower_width": null, "interaction": "dot", "table_dims": [], "table_shares": [],'
        ' "cross_layers": 2, "cross_rank": 16, "cross_structure": "stacked", "second_widths": [], "gate_widths": [64],'
        ' "first_gate": [], "second_gate": [], "fusion_heads": 1, "interactions": ["dot", "linear"],'
        ' "interaction_layers": 2, "interaction_ensemble": "concat", "interaction_vectors": 8, "attention_heads": 2,'
        ' "convolution_channels": 4, "encoder": "gru", "encoder_widths": [32], "encoder_output": "last",'
        ' "towers": null, "tower_fields": [], "tower_kind": "dcn", "tower_vectors": 2, "tower_field_vectors": 0,'
        ' "tower_dim": null, "tower_cross_layers": 1}}'
    )
    options = {"cross_layers": 2, "cross_rank": 16, "cross_structure": "stacked"}
    shared = {"embedding_dim": 8, "bottom_widths": (4,), "top_widths": (), "dropout": 0.1, "batch_norm": True}
    assert Clicks.model_validate_json(written).spec == model_spec("dcnv2", **shared, **options)


@pytest.mark.parametrize("spec", ["dlrm", {"family": "quantum"}, {"family": "dlrm", "width": 3}])
def test_what_is_no_architecture_is_refused(spec: object) -> None:
    with pytest.raises(ValidationError):
        Clicks.model_validate({"spec": spec})
