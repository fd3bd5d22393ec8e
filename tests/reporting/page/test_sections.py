"""The table of the report's sections: its plain data agree with the modules that it names."""

from shunter.extensions.distributed.plan_section import TRAINED_PLAN
from shunter.reporting.card.ranking_breakdown import SIDES
from shunter.reporting.page.features import FEATURES
from shunter.reporting.page.render import template_of
from shunter.reporting.page.sections import REPORT_SECTIONS
from shunter.reporting.page.view import FOLDER


def test_every_section_is_a_function_with_a_template_beside_it() -> None:
    for name in REPORT_SECTIONS.names:
        assert callable(REPORT_SECTIONS.load(name)), name
        assert template_of(name).is_file(), name


def test_artifacts_are_those_that_runs_have() -> None:
    artifacts = {name: entry.capabilities.get("artifact") for name, entry in REPORT_SECTIONS.entries.items()}
    assert artifacts["ranking"] == SIDES
    assert artifacts["plan"] == TRAINED_PLAN
    assert artifacts["features"] == FEATURES
    assert artifacts["card"] == f"{FOLDER}/model_card.md"
