"""Request group of the data, and formats of logs by name.

The target of a format is a source class such as `shunter.ingestion.sources.tabular.CsvSource`, called with name, schema
and paths. A format of `DESCRIBED` is no class but a file of `ingestion/sources/formats/`, which names such a class and
the keys of the schema.
"""

from typing import ClassVar

from pydantic import Field, field_validator

from shunter.predicate import EXAMPLE, parse_predicate
from shunter.registry import Entry, Registry
from shunter.requests.groups import Group
from shunter.secrets import has_password

CRITEO, CSV, PARQUET, JSON_LINES = "criteo", "csv", "parquet", "json"
DESCRIBED = (
    *("ali-ccp", "amazon-reviews", "amazon-reviews-2023", "avazu", "book-crossing", "hm", "kuairec", "lastfm"),
    *("lastfm-360k", "mind", "movielens", "movielens-100k", "movielens-csv", "netflix", "outbrain", "retailrocket"),
    *("steam", "taobao", "yambda", "yoochoose"),
)
FORMATS = Registry(
    "format",
    {
        CRITEO: Entry(target="shunter.ingestion.sources.criteo:CriteoSource"),
        CSV: Entry(target="shunter.ingestion.sources.tabular:CsvSource"),
        PARQUET: Entry(target="shunter.ingestion.sources.tabular:ParquetSource"),
        JSON_LINES: Entry(target="shunter.ingestion.sources.lines:JsonSource"),
        "libsvm": Entry(target="shunter.ingestion.sources.lines:LibsvmSource"),
        "libffm": Entry(target="shunter.ingestion.sources.lines:LibffmSource"),
        "vw": Entry(target="shunter.ingestion.sources.lines:VwSource"),
        "recbole": Entry(target="shunter.ingestion.sources.lines:RecboleSource"),
        "grouped-csv": Entry(target="shunter.ingestion.sources.lines:GroupedCsvSource"),
        **{
            name: Entry(target="shunter.ingestion.sources.described:described", capabilities={"is_described": True})
            for name in DESCRIBED
        },
    },
    group="shunter.formats",
    defaults={"is_described": False},
)


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
