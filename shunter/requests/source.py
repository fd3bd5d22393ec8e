"""Request group of the data."""

from typing import ClassVar

from pydantic import Field, field_validator

from shunter.predicate import EXAMPLE, parse_predicate
from shunter.requests.formats import FORMATS
from shunter.requests.groups import Group
from shunter.secrets import has_password


class DataRequest(Group, frozen=True, title="Data"):
    """Click log and its format."""

    is_found_by_flow: ClassVar[bool] = False  # if True, a command cannot check the files

    data: str = Field(
        default="ml-100k",
        description="Click log: file, folder, glob, comma-separated list, address, or a name of `shunter datasets`.",
    )
    format: str | None = Field(
        default=None,
        description="Format of the log, such as csv, parquet or movielens; guessed if omitted.",
        json_schema_extra=lambda schema: schema.update(enum=[*FORMATS.names]),
    )
    schema_file: str | None = Field(
        default=None,
        description="YAML or JSON file that names the label, numeric, categorical and time columns.",
    )
    where: str | None = Field(
        default=None,
        min_length=1,
        description=f"Condition of the rows to read, such as `{EXAMPLE}`; default: all.",
    )
    max_bad_share: float = Field(
        default=0.01, ge=0, le=1, description="Share of unreadable rows above which ingestion stops."
    )

    @property
    def held_out(self) -> dict[str, str]:
        """Return the separate files of the parts `validation` and `test`, if given."""
        return {}

    @field_validator("where")
    @classmethod
    def _valid_predicate(cls, text: str | None) -> str | None:
        if text is not None:
            parse_predicate(text)
        return text

    @field_validator("data", "schema_file", "validation", "test", check_fields=False)
    @classmethod
    def _holds_no_secret(cls, text: str | None) -> str | None:
        place = (text or "").partition("#")[0]  # behind it is a query
        if "://" in place and has_password(place):
            raise ValueError(
                "the address contains a password or token, which would be stored with the request: leave "
                "it out, and configure the library that reads the address (docs/how-to/remote-data.md)"
            )
        return text


class PartsRequest(DataRequest, frozen=True, title="Data"):
    """Click log and its format; its parts may be separate files."""

    validation: str | None = Field(
        default=None,
        min_length=1,
        description="Predefined validation part, as files like --data; if omitted, split off from --data.",
    )
    test: str | None = Field(
        default=None,
        min_length=1,
        description="Predefined test part, as files like --data; if omitted, split off from --data.",
    )

    @property
    def held_out(self) -> dict[str, str]:
        """Return the separate files of the parts `validation` and `test`, if given."""
        files = {"validation": self.validation, "test": self.test}
        return {part: path for part, path in files.items() if path is not None}
