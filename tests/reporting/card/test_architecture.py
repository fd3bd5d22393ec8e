"""The description of a model is what really runs in it: shapes, parameters, and what feeds what."""

from xml.etree import ElementTree

import pytest

from shunter.model_families import MODEL_FAMILIES
from shunter.models.interactions import DLRM_INTERACTIONS
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import ModelSpec
from shunter.reporting.card.architecture import describe_architecture
from shunter.reporting.card.diagram import diagram
from tests.models.families.test_dlrm import features_of, inputs_of

FEATURES = features_of(2, 2, 1)
CLICK_FAMILIES = (
    "dlrm",
    "dnn",
    "deepfm",
    "dcnv2",
    "finalmlp",
    "dhen",
    "dmt",
    "autoint",
    "masknet",
    "gdcn",
    "wukong",
    "mmoe",
    "ple",
    "esmm",
    "lr",
    "fm",
)


def feeds(family: str) -> dict[str, tuple[str, ...]]:
    model = build_model(model_spec(family=family, embedding_dim=8), FEATURES).eval()
    found = describe_architecture(model, inputs_of(FEATURES, batch=4))
    return {block.name: block.inputs for block in found.blocks}


SPECS = {
    **{
        family: model_spec(family=family, embedding_dim=8)
        for family in CLICK_FAMILIES
        if family in MODEL_FAMILIES.names
    },
    **{name: model_spec(embedding_dim=8, interaction=name) for name in DLRM_INTERACTIONS if name != "dot"},
    "mixed tables": model_spec(embedding_dim=8, table_dims=(4, 8, 4), table_shares=(1.0, 0.5, 1.0)),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_every_family_is_described_completely(spec: ModelSpec) -> None:
    model = build_model(spec, FEATURES).eval()
    found = describe_architecture(model, inputs_of(FEATURES, batch=4))
    parameters = sum(parameter.numel() for parameter in model.layers.parameters())
    assert found.dense_parameters == parameters
    assert sum(layer.parameters for layer in found.layers) == parameters
    assert sum(block.parameters for block in found.blocks if block.kind != "input") == parameters
    assert found.embedding_parameters == model.embeddings.weight.numel()
    known: set[str] = set()
    for block in found.blocks:
        assert set(block.inputs) <= known, "what feeds a block runs before it"
        assert block.inputs or block.kind == "input"
        known.add(block.name)
    used = {source for block in found.blocks for source in block.inputs}
    assert used == known - {"logits"}, "every part leads to the logits"
    drawing = ElementTree.fromstring(diagram(found))
    assert len(drawing.findall("{http://www.w3.org/2000/svg}rect")) == len(found.blocks)
    arrows = drawing.findall("{http://www.w3.org/2000/svg}path")
    assert len(arrows) == sum(len(block.inputs) for block in found.blocks)


def test_flow_of_a_dlrm_and_of_two_streams_is_that_of_their_formulas() -> None:
    dlrm = feeds("dlrm")
    assert dlrm["bottom"] == ("dense features",)
    assert set(dlrm["interaction"]) == {"embeddings", "bottom"}
    assert set(dlrm["top"]) == {"bottom", "interaction"}
    finalmlp = feeds("finalmlp")
    assert finalmlp["streams.0"] == ("gates.0",)
    assert set(finalmlp["fusion"]) == {"streams.0", "streams.1"}


def test_no_hook_is_left_and_the_model_scores_as_before() -> None:
    model = build_model(model_spec(embedding_dim=8), FEATURES).eval()
    inputs = inputs_of(FEATURES, batch=4)
    before = model(*inputs)
    describe_architecture(model, inputs)
    assert model(*inputs).equal(before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
