"""What still works, and what is refused how, in a house without some folders: `house_without.py ROOT FOLDER...`.

`ROOT` holds a package `shunter` from which the folders are missing. A failed assertion ends the process with 1.
"""

import json
import sys
from types import SimpleNamespace as Given
from typing import Any

ROOT, *DELETED = sys.argv[1:]
sys.path.insert(0, ROOT)
sys.meta_path = [finder for finder in sys.meta_path if "Editable" not in repr(finder)]  # it finds the deleted folders

import optuna  # noqa: E402
from torch.nn import Sequential  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

import shunter.flows.cli  # noqa: E402
import shunter.flows.profiling  # noqa: E402
import shunter.flows.train  # noqa: E402, F401
from shunter.engine.checkpoint.checkpoint_settings import ROW_TRACKERS, CheckpointSettings  # noqa: E402
from shunter.engine.checkpoint.copies import CHECKPOINT_COPIES  # noqa: E402
from shunter.engine.checkpoint.storage import WEIGHT_PACKINGS  # noqa: E402
from shunter.engine.config import Execution, Schedule  # noqa: E402
from shunter.engine.executors.role import EXECUTORS  # noqa: E402
from shunter.engine.loop.step_options import STEP_OPTIONS, prepare_layers  # noqa: E402
from shunter.engine.memory import check_tables_fit  # noqa: E402
from shunter.engine.overrides import read_overrides  # noqa: E402
from shunter.engine.passes.role import COMPRESSIONS, TRAINING_PASSES, passes_of  # noqa: E402
from shunter.engine.profiling.profiles import PROCESS_MEASUREMENTS  # noqa: E402
from shunter.engine.table_files import TABLES_IN_FILES, are_supported, embedding_cache  # noqa: E402
from shunter.errors import MissingExtensionError  # noqa: E402
from shunter.flows.command.cli import app  # noqa: E402
from shunter.flows.command.command_registry import COMMANDS  # noqa: E402
from shunter.flows.command.options import JOB_REQUESTS  # noqa: E402
from shunter.flows.nightly import MOVED  # noqa: E402
from shunter.ingestion.cache import check_learned_columns  # noqa: E402
from shunter.ingestion.encoding.learned_map import LEARNED_MAPS, read_learned_maps  # noqa: E402
from shunter.ingestion.schema import Schema  # noqa: E402
from shunter.ingestion.sources.addresses import STORES  # noqa: E402
from shunter.ingestion.workers import CREWS  # noqa: E402
from shunter.model_families import MODEL_FAMILIES, PROBLEMS  # noqa: E402
from shunter.models.altered_layers import ALTERATIONS, finish, prepare  # noqa: E402
from shunter.models.embeddings.kinds import KINDS  # noqa: E402
from shunter.models.optimizers import DENSE_OPTIMIZERS, searched_optimizers  # noqa: E402
from shunter.models.spec import CategoricalFeature, Features, ModelSpec  # noqa: E402
from shunter.registry import Registry  # noqa: E402
from shunter.reporting.page.sections import REPORT_SECTIONS  # noqa: E402
from shunter.requests import SEARCH_METHODS, SEARCH_SPACES, ProfileRequest, TrainRequest  # noqa: E402
from shunter.requests.effort import RESULT_LIMITS  # noqa: E402
from shunter.requests.training import LOGGERS  # noqa: E402
from shunter.search.context import SearchContext  # noqa: E402
from shunter.search.methods.registry import PAST_SEARCHES, build_method  # noqa: E402
from shunter.search.protocol import BudgetLeft  # noqa: E402
from shunter.search.search import _past  # noqa: E402
from shunter.search.space.settings import SearchSpace  # noqa: E402
from shunter.settings import Settings  # noqa: E402
from shunter.tasks.accelerators import MOVES, installed_move  # noqa: E402
from shunter.tasks.doctor import HOME_PARTS, parts  # noqa: E402
from shunter.tasks.profile import TRAINING_ANALYSES, check_request  # noqa: E402
from shunter.tasks.training_plans import PLANNERS, check_is_installed  # noqa: E402
from shunter.tracking.registry.named import EXPORT_FORMATS, INCREMENTS  # noqa: E402

CORE = (
    *(ALTERATIONS, CHECKPOINT_COPIES, COMMANDS, COMPRESSIONS, CREWS, DENSE_OPTIMIZERS, EXECUTORS, EXPORT_FORMATS),
    *(
        HOME_PARTS,
        INCREMENTS,
        JOB_REQUESTS,
        KINDS,
        LEARNED_MAPS,
        LOGGERS,
        MODEL_FAMILIES,
        MOVED,
        MOVES,
        PAST_SEARCHES,
        PLANNERS,
        PROBLEMS,
        PROCESS_MEASUREMENTS,
    ),
    *(REPORT_SECTIONS, RESULT_LIMITS, ROW_TRACKERS, SEARCH_METHODS, SEARCH_SPACES, STEP_OPTIONS),
    *(STORES, TABLES_IN_FILES, TRAINING_ANALYSES, TRAINING_PASSES, WEIGHT_PACKINGS),
)


def is_deleted(folder: str) -> bool:
    """Return True if the house lacks a folder."""
    return folder in DELETED


def refused_extension(work: Any, *arguments: Any) -> str | None:
    """Return the folder that a refusal names; None if nothing is refused."""
    try:
        work(*arguments)
    except MissingExtensionError as refused:
        return refused.extension
    return None


def of_operation() -> list[Registry]:
    """Return the registries of the application `operation`."""
    if is_deleted("operation"):
        return []
    from shunter.operation.background_services import EXAMPLES, SCHEDULES
    from shunter.operation.deployments import DEPLOYED_FLOWS, deployed_flows

    assert len(deployed_flows()) == len(DEPLOYED_FLOWS.names)
    return [DEPLOYED_FLOWS, EXAMPLES, SCHEDULES]


def check_registries() -> None:
    """Whatever a deleted folder offered is no longer among the names, and is refused by its name."""
    for registry in (*CORE, *of_operation()):
        for name, entry in registry.entries.items():
            needed = (entry.extension, entry.needs)
            if missing := [one for one in needed if one and is_deleted(one)]:
                assert name not in registry.names, name
                assert refused_extension(registry.load, name) == missing[0], name


def check_search() -> None:
    """Settings are searched, without taught starting points where nothing teaches."""
    assert "adam" in searched_optimizers()
    assert SEARCH_METHODS.names[:3] == ("tpe", "random", "nsga2")
    for name in SEARCH_METHODS.names:
        SEARCH_METHODS.load(name)
    TrainRequest().search.check_is_installed()
    of_architectures = TrainRequest(search_method="random", search_space="architecture").search
    assert refused_extension(of_architectures.check_is_installed) == ("nas" if is_deleted("nas") else None)
    assert PAST_SEARCHES.entries["studies"].is_installed != is_deleted("meta_learning")
    if is_deleted("meta_learning"):
        assert _past(Given()) == ()  # pyright: ignore[reportArgumentType]
    context = SearchContext(
        space=SearchSpace(),
        study=optuna.create_study(),
        dataset=Given(splits={"train": Given(rows=100)}),  # pyright: ignore[reportArgumentType]
        execution=Execution(),
        schedule=Schedule(),
        directory=None,  # pyright: ignore[reportArgumentType]
    )
    assert build_method("tpe", context).ask(BudgetLeft()) == SearchSpace().default()


def check_models() -> None:
    """Every installed family is read; the family of a deleted folder is refused."""
    for family in MODEL_FAMILIES.names:
        read_overrides(family, [])
        if not is_deleted("distributed"):
            MODEL_FAMILIES.load_part(family, "host_model")
    assert refused_extension(read_overrides, "dmt", []) == ("towers" if is_deleted("towers") else None)
    if is_deleted("towers") and not is_deleted("distributed"):
        from shunter.extensions.distributed.planning.tower_step import tower_workload

        assert tower_workload(None, None, 2, 4.0) is None  # pyright: ignore[reportArgumentType]


def check_layers() -> None:
    """Rewritten models score with their original layers; what lacks the original ones is refused, and limits too."""
    assert len(passes_of("training")) == (0 if is_deleted("rewriting") else 3)
    if is_deleted("rewriting"):
        finish(Given(), {"rewriting": ["merge_linears:1,2"]})  # pyright: ignore[reportArgumentType]
        packing = Execution(packs_activations=True)
        assert refused_extension(prepare_layers, None, packing) == "rewriting"
    compression = "compression" if is_deleted("compression") else None
    assert refused_extension(prepare, Sequential(), {"compression": {"layers": {}}}) == compression
    within = TrainRequest(ensemble_memory="2MiB").ensemble
    assert refused_extension(within.check_is_installed) == compression
    assert refused_extension(WEIGHT_PACKINGS.load_part, "few_bits", "load_within") == compression


def check_machine() -> None:
    """A machine is profiled, and trainings stay where they began where nothing moves them."""
    check_request(ProfileRequest())
    of_training = ProfileRequest(model="dlrm", data="clicks.parquet")
    needed = next((one for one in ("stalls", "distributed") if is_deleted(one)), None)
    assert refused_extension(check_request, of_training) == needed
    assert (installed_move("machine") is None) == is_deleted("fleet")
    assert ("fleet policies" in [part.name for part in parts(Settings())]) != is_deleted("fleet")


def check_processes() -> None:
    """One process trains; several, and a cluster, are refused where nothing divides a training."""
    check_is_installed(TrainRequest())
    missing = "distributed" if is_deleted("distributed") else None
    for options in ({"processes": 2}, {"cluster": "auto"}):
        assert refused_extension(check_is_installed, TrainRequest(**options)) == missing


def check_checkpoints() -> None:
    """Checkpoints hold all rows where nothing tracks the changed ones."""
    missing = "incremental_checkpoints" if is_deleted("incremental_checkpoints") else None
    assert refused_extension(check_is_installed, TrainRequest(checkpoint_policy="one-shot")) == missing
    assert CheckpointSettings().is_incremental(1 << 30) == (missing is None)


def check_tables_in_files() -> None:
    """All tables are in memory where nothing keeps them in files; a limit of their memory is refused."""
    missing = "tiers" if is_deleted("tiers") else None
    assert are_supported() == (missing is None)
    assert refused_extension(check_is_installed, TrainRequest(embedding_memory="1GiB")) == missing
    kept = Execution(embedding_memory_bytes=1 << 30)  # of a run whose decision is kept
    features = Features(dense=(), categorical=(CategoricalFeature(name="item", rows=10),))
    assert refused_extension(check_tables_fit, ModelSpec(), features, kept) == missing
    dataset = Given(features=features)
    assert refused_extension(embedding_cache, kept, ModelSpec(), dataset) == missing
    assert embedding_cache(Execution(), ModelSpec(), dataset) is None  # pyright: ignore[reportArgumentType]


def check_learned_maps() -> None:
    """Learned maps are refused where nothing learns and reads them, and other ids are read."""
    missing = "learned_hashing" if is_deleted("learned_hashing") else None
    values = {"label": "click", "categorical": ["user"], "vocabulary": {"learned_rows": 8}}
    schema = Schema.model_validate(values)
    assert refused_extension(lambda: check_learned_columns(schema, is_ranking=False)) == missing
    assert read_learned_maps({}) == {}
    if missing:
        assert refused_extension(read_learned_maps, {"learned.sizes.user": None}) == missing


def check_commands() -> None:
    """Help is printed; a command of a deleted folder is refused with the code of the error."""
    assert CliRunner().invoke(app, ["--help"]).exit_code == 0
    for name in COMMANDS.entries.keys() - set(COMMANDS.names):
        refused = CliRunner().invoke(app, [*name.split(), "--json"])
        assert refused.exit_code == MissingExtensionError.exit_code
        assert json.loads(refused.stdout)["code"] == MissingExtensionError.code


check_registries()
check_search()
check_models()
check_layers()
check_machine()
check_processes()
check_checkpoints()
check_tables_in_files()
check_learned_maps()
check_commands()
left = {name for one in DELETED for name in (f"shunter.{one}", f"shunter.extensions.{one}") if name in sys.modules}
assert not left, left
