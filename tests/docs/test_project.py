"""Files of a public project agree with each other: version, changelog, workflows, templates."""

import re
import tomllib

import pytest
import yaml

from shunter.settings import PROJECT_ROOT

PROJECT = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]
CHECKS = yaml.safe_load((PROJECT_ROOT / ".github/workflows/checks.yml").read_text())["jobs"]["check"]
MATRIX = CHECKS["strategy"]["matrix"]


def test_the_changelog_begins_with_the_version_of_the_project() -> None:
    versions = re.findall(r"^## \[?([\d.]+)\]?", (PROJECT_ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == PROJECT["version"]


def test_workflows_call_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([\w-]+):", (PROJECT_ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {*MATRIX["target"]} <= {*targets}
    assert [step["run"].split()[0] for step in CHECKS["steps"] if "run" in step] == ["make"]


def test_workflows_try_the_oldest_and_the_newest_supported_python() -> None:
    lowest, excluded = re.findall(r"3\.(\d+)", PROJECT["requires-python"])
    assert MATRIX["python"] == [f"3.{lowest}", f"3.{int(excluded) - 1}"]


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_templates_have_what_the_form_requires(name: str) -> None:
    template = yaml.safe_load((PROJECT_ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text())
    assert {"name", "description", "body"} <= {*template}
    assert all({"id", "type"} <= {*field} and field["attributes"]["label"] for field in template["body"])
