"""Names of the built-in data sets, in a module without the imports of their readers."""

from dataclasses import dataclass

MOVIELENS = "ml-100k"
HISTORY_LENGTH = 20
DEFAULT_ROWS = 100_000  # rows of the synthetic data set


@dataclass(frozen=True)
class NamedDataset:
    """Entry of the list that `shunter datasets` shows."""

    name: str
    description: str
    size: str
    licence: str


def named_datasets() -> tuple[NamedDataset, ...]:
    """Return the data sets that `--data` takes by name."""
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
    """Return True if `data` names a built-in data set instead of files."""
    return data.split(":", maxsplit=1)[0] in {MOVIELENS, "synthetic"}


def with_histories(data: str) -> str:
    """Return `ml-100k` with its default history length for models that read histories; return other data unchanged."""
    return f"{MOVIELENS}:{HISTORY_LENGTH}" if data == MOVIELENS else data
