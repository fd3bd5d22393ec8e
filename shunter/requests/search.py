"""Request groups of the search before a training run: budget, space and method; search methods and spaces by name.

The target of a method is called with a `shunter.search.context.SearchContext` and returns a
`shunter.search.protocol.SearchMethod`; `shunter.search.methods.registry` loads it. The target of a space is a class
with `for_dataset`, which makes a `shunter.search.protocol.Space`.

Capabilities of a method:
    only_space: The only search space of the method, which is also its default; absent if the method works on every
        space.
    one_at_a_time: Whether a search that only a time budget ends tries one point at a time. The reason is that the
        method learns from each trial, or trains its own network beside the trials. False if absent.
"""

from enum import StrEnum
from typing import Self

from pydantic import Field, field_validator, model_validator

from shunter.registry import Entry, Registry
from shunter.requests.groups import Group
from shunter.secrets import has_password

SEARCH_METHODS = Registry(
    "search method",
    {
        "tpe": Entry(target="shunter.search.methods.registry:build_tpe"),
        "random": Entry(target="shunter.search.methods.registry:build_random"),
        "nsga2": Entry(target="shunter.search.methods.registry:build_nsga2"),
        "dnas": Entry(
            target="shunter.extensions.nas.dnas:Dnas",
            capabilities={"only_space": "architecture", "one_at_a_time": True},
        ),
        "rl": Entry(
            target="shunter.extensions.nas.reinforce.controller:controller_for", capabilities={"one_at_a_time": True}
        ),
        "transfer": Entry(target="shunter.extensions.meta_learning.transfer:Transfer"),
    },
    group="shunter.search_methods",
)
SEARCH_SPACES = Registry(
    "search space",
    {
        "settings": Entry(target="shunter.search.space.settings:SearchSpace"),
        "wide": Entry(target="shunter.search.space.settings:SearchSpace"),
        "architecture": Entry(target="shunter.extensions.nas.architecture_space:ArchitectureSpace"),
    },
    group="shunter.search_spaces",
)


FROM_VARIABLE, FROM_SECRET = "env:", "secret:"  # prefix of the variable or secret that holds an address
WITHOUT_PASSWORD = r"^(?!.*://[^/:]*:[^@]*@)(?!.*(password|passwd|pwd)=).*$"


class Preset(StrEnum):
    """Effort of a search that names no budget."""

    QUICK = "quick"
    STANDARD = "standard"
    THOROUGH = "thorough"


PRESET_TRIALS = {Preset.QUICK: 3, Preset.STANDARD: 9, Preset.THOROUGH: 30}


class SearchSpaceName(StrEnum):
    """Name of a search space."""

    SETTINGS = "settings"
    WIDE = "wide"
    ARCHITECTURE = "architecture"


class SearchCost(StrEnum):
    """Cost that is traded off against the quality."""

    TIME = "time"
    ENERGY = "energy"
    BYTES = "bytes"


class TowerStrategy(StrEnum):
    """Strategy that assigns fields to the towers of a DMT."""

    AUTO = "auto"
    COHERENT = "coherent"
    DIVERSE = "diverse"
    ORDER = "order"


class SearchBudget(Group, frozen=True, title="Search"):
    """Budget of the search."""

    preset: Preset = Field(
        default=Preset.STANDARD,
        description="Effort: "
        + ", ".join(f"{name.value} tries {trials}" for name, trials in PRESET_TRIALS.items())
        + " settings.",
    )
    trials: int | None = Field(
        default=None,
        ge=1,
        description="Number of trials; if omitted, as many as fit --search-minutes or --search-kwh, or --preset's.",
    )
    search_minutes: float | None = Field(
        default=None,
        gt=0,
        description="Time limit of the search including its ensemble members, in minutes.",
    )
    search_kwh: float | None = Field(
        default=None, gt=0, description="Energy limit of the search, in kWh; the search also counts towards --max-kwh."
    )

    @property
    def most_trials(self) -> int | None:
        """Return the number of settings to try; None if only a time or energy budget ends the search."""
        if self.trials is None and self.search_minutes is None and self.search_kwh is None:
            return PRESET_TRIALS[self.preset]
        return self.trials

    @property
    def may_run_together(self) -> bool:
        """Return True if only a number of trials ends the search, so that parallel trials shorten the search."""
        return self.search_minutes is None and self.search_kwh is None


class SearchRequest(SearchBudget, frozen=True, title="Search"):
    """Budget, space and method of the search."""

    search_method: str = Field(
        default="tpe",
        description="Search method: tpe, random, nsga2, transfer; for architectures dnas or rl.",
        json_schema_extra=lambda schema: schema.update(enum=[*SEARCH_METHODS.names]),
    )
    search_space: SearchSpaceName | None = Field(
        default=None,
        description="Search space: settings, wide (with further options), or architecture (of the model dlrm).",
    )
    search_cost: SearchCost | None = Field(
        default=None,
        description="Cost to minimise together with NE: step time, energy per sample, or parameter bytes.",
    )
    tower_partition: TowerStrategy = Field(
        default=TowerStrategy.AUTO,
        description="How fields are grouped into the towers of --model dmt; auto lets the search choose.",
    )
    cold_start: bool = Field(
        default=False,
        description="Ignore the results of earlier searches.",
    )
    parallel_trials: int | None = Field(
        default=None,
        ge=1,
        description="Number of parallel trials, in processes on this machine or on nodes of --cluster.",
    )
    search_storage: str | None = Field(
        default=None,
        min_length=1,
        description="Shared database of the search: path in .db or .journal, address, env:NAME or secret:NAME.",
        json_schema_extra={"pattern": WITHOUT_PASSWORD},  # so that Prefect refuses it before it is kept
    )

    @property
    def trials_at_a_time(self) -> int:
        """Return the number of parallel trials, and of parallel training runs of members."""
        return self.parallel_trials or 1

    @property
    def is_by_minutes_alone(self) -> bool:
        """Return True if only a time budget ends the search, so that more parallel trials mean more tried settings."""
        if SEARCH_METHODS.stated(self.search_method).get("one_at_a_time", False):
            return False
        has_other_budget = self.trials is not None or self.search_kwh is not None
        return self.search_minutes is not None and not has_other_budget and self.search_cost is None

    @property
    def may_run_together(self) -> bool:
        """Return True if only a number of trials ends the search, and the planner may choose how many run at once."""
        is_open = self.parallel_trials is None and self.search_cost is None
        one_by_one = SEARCH_METHODS.stated(self.search_method).get("one_at_a_time", False)
        return is_open and not one_by_one and super().may_run_together

    @property
    def space(self) -> SearchSpaceName:
        """Return the search space: the requested one, else the method's default."""
        of_method = SEARCH_METHODS.stated(self.search_method).get("only_space", SearchSpaceName.SETTINGS)
        return self.search_space or SearchSpaceName(of_method)

    def check_is_installed(self) -> None:
        """Raise if the method or the space is not available, before anything is read or measured.

        Raises:
            UnknownNameError: No search method has the name.
            MissingExtensionError: The method or the space belongs to an extension that is not installed.
        """
        SEARCH_METHODS.entry(self.search_method)
        SEARCH_SPACES.entry(self.space)

    @field_validator("search_storage")
    @classmethod
    def _check_storage(cls, address: str | None) -> str | None:
        if address is not None and has_password(address):
            raise ValueError(
                "the address of --search-storage contains a password, which would be stored with the "
                "request: put the address into an environment variable and give its name, as in "
                "--search-storage env:SHUNTER_SEARCH_STORAGE"
            )
        return address

    @model_validator(mode="after")
    def _check_space(self) -> Self:
        only = SEARCH_METHODS.stated(self.search_method).get("only_space", self.space)
        if self.space != only:
            raise ValueError(
                f"--search-method {self.search_method} supports only the search space {only}: leave out "
                f"--search-space {self.space.value}"
            )
        return self
