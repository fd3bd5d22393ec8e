"""Data sets that are named instead of given as files: what there is, known without importing what reads them."""

from dataclasses import dataclass

MOVIELENS = "ml-100k"
HISTORY_LENGTH = 20
DEFAULT_ROWS = 100_000  # of the generated one


@dataclass(frozen=True)
class NamedDataset:
    """What `shunter datasets` shows."""

    name: str
    description: str
    size: str
    licence: str


def named_datasets() -> tuple[NamedDataset, ...]:
    """The data sets that `--data` takes by name."""
    return (
        NamedDataset(
            name="ml-100k[:LENGTH]",
            description="MovieLens-100K as clicks: a rating of 4 or 5 is a positive; split by time. With a length, "
            "each row has the last so many films that its user rated before; `--model sequence` implies 20.",
            size="100,000 rows, 943 users, 1,682 films",
            licence="GroupLens: research use, not redistributed here; fetched inside the wheel recbole 1.2.1",
        ),
        NamedDataset(
            name="synthetic[:ROWS[:SEED]]",
            description="Generated clicks in Criteo's shape: 13 numbers, 26 skewed categories, a planted signal.",
            size=f"{DEFAULT_ROWS:,} rows, or as many as asked for",
            licence="none needed: generated",
        ),
    )


def is_named(data: str) -> bool:
    """Whether `data` names a data set rather than files."""
    return data.split(":", maxsplit=1)[0] in {MOVIELENS, "synthetic"}


def with_histories(data: str) -> str:
    """The same data with histories for a model that reads them, where a name can ask for them; other data unchanged."""
    return f"{MOVIELENS}:{HISTORY_LENGTH}" if data == MOVIELENS else data
