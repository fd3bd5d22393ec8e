"""Any folder of `extensions/`, and any application, can be deleted: the core stands, and refuses what it offered."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shunter.registry import APPLICATIONS
from shunter.settings import PROJECT_ROOT

EXTENSIONS = sorted(path.parent.name for path in (PROJECT_ROOT / "extensions").glob("*/__init__.py"))
DELETABLE = (*APPLICATIONS, *EXTENSIONS)
SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
sys.meta_path = [finder for finder in sys.meta_path if "Editable" not in repr(finder)]  # it finds the deleted folder
import shunter
import shunter.flows.cli, shunter.flows.train, shunter.flows.profiling
from shunter.errors import MissingExtensionError
from shunter.flows.command.command_registry import COMMANDS
from shunter.flows.command.options import JOB_REQUESTS
from shunter.flows.nightly import MOVED
from shunter.model_families import MODEL_FAMILIES
from shunter.models.optimizers import DENSE_OPTIMIZERS, searched_optimizers
from shunter.reporting.page.sections import REPORT_SECTIONS
from shunter.requests import SEARCH_METHODS, SEARCH_SPACES, ProfileRequest, TrainRequest
from shunter.settings import Settings
from shunter.tasks.accelerators import MOVES, installed_move
from shunter.tasks.doctor import HOME_PARTS, parts
from shunter.tasks.profile import TRAINING_ANALYSES, check_request
assert "adam" in searched_optimizers()
registries = [JOB_REQUESTS, MOVED]
if "operation" not in sys.argv[2:]:
    from shunter.operation.background_services import SCHEDULES
    from shunter.operation.deployments import DEPLOYED_FLOWS, deployed_flows
    assert len(deployed_flows()) == len(DEPLOYED_FLOWS.names)
    registries += [DEPLOYED_FLOWS, SCHEDULES]
deployed_flows = []
if "operation" not in sys.argv[2:]:
    from shunter.operation.deployments import DEPLOYED_FLOWS
    deployed_flows = [DEPLOYED_FLOWS]
for registry in (
    *deployed_flows,
    *(COMMANDS, DENSE_OPTIMIZERS, HOME_PARTS, MODEL_FAMILIES, MOVES),
    *(REPORT_SECTIONS, SEARCH_METHODS, SEARCH_SPACES, TRAINING_ANALYSES),
):
    for name, entry in registry.entries.items():
        if entry.extension in sys.argv[2:]:
            assert name not in registry.names
            try:
                registry.load(name)
            except MissingExtensionError as refused:
                assert refused.extension == entry.extension
            else:
                raise SystemExit(f"{name} is there")
assert SEARCH_METHODS.names[:3] == ("tpe", "random", "nsga2")
for name in SEARCH_METHODS.names:
    SEARCH_METHODS.load(name)
TrainRequest().search.check_is_installed()
try:
    TrainRequest(search_method="random", search_space="architecture").search.check_is_installed()
except MissingExtensionError as refused:
    assert (refused.role, refused.extension) == ("search space", "nas") and "nas" in sys.argv[2:]
else:
    assert "nas" not in sys.argv[2:]
import optuna
from types import SimpleNamespace as Given
from shunter.engine.config import Execution, Schedule
from shunter.search.context import SearchContext
from shunter.search.methods.registry import PAST_SEARCHES, build_method
from shunter.search.protocol import BudgetLeft
from shunter.search.search import _past
from shunter.search.space.settings import SearchSpace
assert PAST_SEARCHES.entries["studies"].is_installed == ("meta_learning" not in sys.argv[2:])
if "meta_learning" in sys.argv[2:]:
    assert _past(Given()) == ()
context = SearchContext(
    space=SearchSpace(), study=optuna.create_study(), dataset=Given(splits={"train": Given(rows=100)}),
    execution=Execution(), schedule=Schedule(), directory=None,
)
assert build_method("tpe", context).ask(BudgetLeft()) == SearchSpace().default()
from shunter.engine.fixed import read_fixed
from shunter.planner.parallel.tower_demand import tower_workload
for family in MODEL_FAMILIES.names:
    read_fixed(family, [])
    MODEL_FAMILIES.load_part(family, "host_model")
if "towers" in sys.argv[2:]:
    assert tower_workload(None, None, 2, 4.0) is None
    try:
        read_fixed("dmt", [])
    except MissingExtensionError as refused:
        assert refused.extension == "towers"
    else:
        raise SystemExit("dmt is there")
check_request(ProfileRequest())
try:
    check_request(ProfileRequest(model="dlrm", data="clicks.parquet"))
except MissingExtensionError:
    assert "stalls" in sys.argv[2:]
assert (installed_move("machine") is None) == ("fleet" in sys.argv[2:])
assert ("fleet policies" in [part.name for part in parts(Settings())]) == ("fleet" not in sys.argv[2:])
from typer.testing import CliRunner
from shunter.flows.command.cli import app
assert CliRunner().invoke(app, ["--help"]).exit_code == 0
for name in COMMANDS.entries.keys() - set(COMMANDS.names):
    refused = CliRunner().invoke(app, [*name.split(), "--json"])
    assert refused.exit_code == MissingExtensionError.exit_code
    assert json.loads(refused.stdout)["code"] == MissingExtensionError.code
missing = [one for one in sys.argv[2:] if {f"shunter.{one}", f"shunter.extensions.{one}"} & set(sys.modules)]
assert not missing, missing
"""


@pytest.mark.slow
@pytest.mark.parametrize("deleted", [*([one] for one in DELETABLE), [*DELETABLE]], ids="+".join)
def test_the_core_stands_without_what_can_be_deleted(deleted: list[str], tmp_path: Path) -> None:
    package = tmp_path / "shunter"
    shutil.copytree(PROJECT_ROOT / "shunter", package)
    for folder in (path.parent.name for path in PROJECT_ROOT.glob("*/__init__.py")):
        if folder not in {"shunter", "extensions", "benchmarks", "tests", *deleted}:
            (package / folder).symlink_to(PROJECT_ROOT / folder)
    (package / "extensions").mkdir()
    (package / "extensions" / "__init__.py").touch()
    for name in set(EXTENSIONS) - set(deleted):
        (package / "extensions" / name).symlink_to(PROJECT_ROOT / "extensions" / name)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *deleted], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
