"""Settings: locations of all files of Shunter, and its other environment variables."""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from shunter.errors import RequestError
from shunter.validation import expected, own_text, sentence, shown

PROJECT_ROOT = Path(__file__).resolve().parent.parent
_UNADDRESSABLE = re.compile(r"\?|%[0-9A-Fa-f]{2}")  # would begin a query, or be read as another character


class Below:
    """Descriptor of a path below the home."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __get__(self, settings: "Settings | None", kind: type | None = None) -> Path:
        """Return the path of the settings' home."""
        return Path() if settings is None else settings.home.joinpath(*self._parts)


class Settings(BaseSettings):
    """Locations, each settable by an environment variable `SHUNTER_<NAME>`.

    A new `Settings()` reads the environment each time, so that tests can change it. Frequent readers use the cached
    `settings()`.
    """

    model_config = SettingsConfigDict(env_prefix="SHUNTER_", frozen=True, extra="ignore", ignored_types=(Below,))

    def __init__(self, **values: Any) -> None:
        """Read the settings from environment variables.

        Raises:
            RequestError: A variable has an invalid value.
        """
        try:
            super().__init__(**values)
        except ValidationError as error:
            clauses = []
            for fault in error.errors(include_url=False):
                name = f"SHUNTER_{str(fault['loc'][-1]).upper()}"
                is_own = fault["type"] == "value_error"
                clauses.append(
                    own_text(fault, name) if is_own else f"{name} is {shown(fault['input'])}: give {expected(fault)}"
                )
            raise RequestError(sentence(clauses)) from error

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the environment only; a search for settings files, which do not exist, would double the time."""
        return init_settings, env_settings

    home: Path = Field(
        default_factory=lambda: _default_home(PROJECT_ROOT),
        description="Folder of the data cache, hardware profiles, unfinished runs and Prefect's database; if omitted, "
        "`.shunter` of the source checkout, or the user's data folder for an installed package.",
    )
    tracking_directory: Path | None = Field(
        default=None,
        description="Folder of MLflow's database and artifacts; if omitted, `mlflow/` of the project, or of `home` if "
        "that is set.",
    )

    catalogue: Path | None = Field(
        default=None,
        description="YAML file with the user's own accelerators and prices; if omitted, `catalogue.yaml` of `home`.",
    )

    model_key: Path | None = Field(
        default=None,
        description="File of the key that signs registered models; if omitted, `model.key` of `home`. Homes that share "
        "a registry need the same file.",
    )

    accepted_models: str | None = Field(
        default=None,
        description="Fingerprints of models to load although no key of this home signed them, separated by commas; "
        "`shunter export` prints a model's fingerprint.",
    )

    allow_power_limit: bool = Field(
        default=False,
        description="Whether Shunter may lower the power limit of the machine's GPUs, as permitted by the machine's "
        "operator.",
    )

    lock_directory: Path | None = Field(
        default=None,
        description="Folder of the locks that reserve accelerators for a training run; if omitted, `locks` of `home`. "
        "Homes that share a machine need the same folder.",
    )

    server_idle_minutes: float = Field(
        default=10.0,
        ge=0,
        description="Minutes for which the Prefect server of a finished command waits for the next command; 0 ends it "
        "at once.",
    )

    notify_webhook: SecretStr | None = Field(
        default=None,
        description="Web address to which a JSON message is posted when a flow run ends or crashes; its key `text` "
        "holds the message.",
    )

    notify_command: SecretStr | None = Field(
        default=None,
        description="Command that receives the same JSON message as `notify_url` on standard input; run without a "
        "shell.",
    )

    process_directory = Below("services", "folder")
    """Working folder of the processes that this home starts; nothing is written there on purpose."""
    services_directory = Below("services")
    """Folder with a JSON file for each process that `shunter up` has started, and the logs."""
    deployment_data_directory = Below("data")
    """Folder that a deployment may read if `data_roots` is not set."""
    model_keys_directory = Below("model-keys")
    """Folder with copies of the keys that this home has signed models with, one file for each key."""
    accepted_models_directory = Below("accepted-models")
    """Folder of the fingerprints of models that `--accept` has named, one empty file for each model."""
    prices_path = Below("prices.yaml")
    """The user's file of prices, which need not exist."""
    cache_directory = Below("cache")
    """Folder of ingested data sets, one subfolder for each content fingerprint."""
    frames_directory = Below("frames")
    """Folder of data frames that Python callers passed, as Parquet files, one subfolder for each content."""
    traces_directory = Below("traces")
    """Folder of the traced operations of a step, one JSON file for each shape of a model."""
    baselines_directory = Below("baselines")
    """Folder of trained baselines, one subfolder per combination of data, settings, schedule and code."""
    data_features_directory = Below("data_features")
    """Folder of meta-features, one JSON file for each data set and version of the code that computes them."""
    operators_directory = Below("operators")
    """Folder of measured operator times, one JSON file for each machine and kind of measurement."""
    executed_plans = Below("plans", "executed.jsonl")
    """File of the measured steps of executed plans, one line each, which calibrate later plans."""
    profile_directory = Below("profiles")
    """Folder of measured hardware profiles, one JSON file for each machine."""
    runs_directory = Below("runs")
    """Folder of the state of resumable runs: studies, checkpoints and placement decisions."""
    nights_directory = Below("nights")
    """Folder of nightly retraining: the daily logs and the state, one subfolder for each registered model."""
    downloads_directory = Below("downloads")
    """Folder of files from a package registry, checked against their SHA-256."""
    objects_directory = Below("objects")
    """Folder of local copies of remote files and tables, one subfolder for each version of a remote address."""

    @field_validator("home", "tracking_directory", "catalogue", "model_key", "lock_directory")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        """Make paths absolute, because child processes have other working folders."""
        return None if path is None else path.absolute()

    @field_validator("home", "tracking_directory")
    @classmethod
    def _addressable(cls, path: Path | None) -> Path | None:
        """Refuse paths that cannot be part of the address of a database or an artifact."""
        if path is not None and (found := _UNADDRESSABLE.search(str(path.resolve()))):
            raise ValueError(f"the path of the folder contains {found[0]}: choose another folder")
        return path

    def absolute_paths(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return those variables that name a path of these settings, with absolute paths."""
        paths = {name: value for name, value in self if isinstance(value, Path)}
        names = {name: f"SHUNTER_{name.upper()}" for name in paths}
        return {names[name]: str(path) for name, path in paths.items() if variables.get(names[name])}

    @property
    def locks(self) -> Path:
        """Folder of the locks that reserve accelerators."""
        return self.lock_directory or self.home / "locks"

    host: str = Field(default="127.0.0.1", description="Address on which the web interfaces listen.")

    host_names: str | None = Field(
        default=None,
        description="Host names that browsers use, separated by commas; required when `host` is not loopback.",
    )

    mlflow_basic_auth: bool = Field(
        default=False,
        description="Whether MLflow requires a user name and a password; required when `host` is not loopback.",
    )

    serve_token: SecretStr | None = Field(
        default=None,
        description="Token that clients of `shunter serve` must send; required when `host` is not loopback.",
    )

    data_roots: str | None = Field(
        default=None,
        description="Folders from which data may be read, separated by colons; if omitted, all from the command line, "
        "and `data` of `home` from a deployment.",
    )

    data_addresses: str | None = Field(
        default=None,
        description="Prefixes of the remote addresses that may be read, such as s3://bucket/logs, separated by commas; "
        "if neither this nor `data_roots` is set, all from the command line, and none from a deployment.",
    )

    object_cache_gib: float = Field(
        default=100.0,
        gt=0,
        description="Maximum size of the local copies of remote objects and tables, in GiB; the oldest are removed.",
    )

    object_timeout_seconds: float = Field(
        default=60.0, gt=0, description="Seconds without an answer after which a remote read is repeated."
    )

    max_input_bytes: int | None = Field(
        default=None, gt=0, description="Maximum size of an ingested click log in bytes, after decompression."
    )

    max_input_rows: int | None = Field(
        default=None, gt=0, description="Maximum number of rows of an ingested click log, including unreadable ones."
    )

    @property
    def opened_roots_path(self) -> Path:
        """File with further folders that deployments may read: those of `shunter up` and those of nightly runs."""
        return self.services_directory / "opened_roots.json"

    @property
    def model_key_path(self) -> Path:
        """File of the key that signs registered models; created when the first model is registered."""
        return self.model_key or self.home / "model.key"

    @property
    def catalogue_path(self) -> Path:
        """File of the user's additions to the hardware catalogue; need not exist."""
        return self.catalogue or self.home / "catalogue.yaml"

    @property
    def tracking_root(self) -> Path:
        """Folder of MLflow's database and artifacts."""
        if self.tracking_directory is not None:
            return self.tracking_directory
        inside_project = self.home == PROJECT_ROOT / ".shunter"
        return PROJECT_ROOT / "mlflow" if inside_project else self.home / "mlflow"


def _default_home(root: Path) -> Path:
    """Return the home if none is named: beside the sources in a checkout, else the user's folder for data."""
    beside = root / ".shunter"
    if (root / "pyproject.toml").is_file() or beside.is_dir():
        return beside
    import platformdirs

    return platformdirs.user_data_path("shunter", appauthor=False)


def settings() -> Settings:
    """Return the settings of the current environment; cached until a variable changes, because reading is slow.

    Raises:
        RequestError: A variable has an invalid value.
    """
    return _read(tuple(item for item in os.environ.items() if item[0].upper().startswith("SHUNTER_")))


@lru_cache(maxsize=4)
def _read(variables: tuple[tuple[str, str], ...]) -> Settings:
    return Settings()
