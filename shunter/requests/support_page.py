"""The page of the documentation that shows what goes with what: `python -m shunter.requests.support_page`."""

from collections.abc import Iterable, Iterator

from shunter.model_families import MODEL_FAMILIES, RANKING_MODELS
from shunter.requests.support import CONFLICTS, NEEDS, PARTNERS

TITLES = {
    "is_in_auto": "tried by auto",
    "reads_positions": "reads histories",
    "mixes_widths": "tables of several widths",
    "multiplies_numbers": "vector for each number",
    "has_towers": "towers",
    "has_architecture_space": "architecture to search",
}
HEAD = """# Which options go together

Requests are checked against these tables; an option that does not fit is refused before anything is read or measured.

<!-- Written by `python -m shunter.requests.support_page`. -->
"""


def support_page() -> str:
    """Return the page as Markdown."""
    sections = {
        "Click models": _table(("`--model`", *TITLES.values()), _families()),
        "Ranking models": _table(("`--model`", "trained"), _rankers()),
        "Options that need certain models": _table(("option", "needs a model that"), _needs()),
        "Options that exclude each other": _table(("options", "because"), _conflicts()),
        "Options that need another one": _table(("option", "needs one of"), _partners()),
    }
    return HEAD + "".join(f"\n## {title}\n\n{text}\n" for title, text in sections.items())


def _families() -> Iterator[tuple[str, ...]]:
    for name in MODEL_FAMILIES.entries:
        stated = {**MODEL_FAMILIES.defaults, **MODEL_FAMILIES.stated(name)}
        yield (f"`{name}`", *("yes" if stated[capability] else "" for capability in TITLES))


def _rankers() -> Iterator[tuple[str, ...]]:
    for name in RANKING_MODELS.entries:
        yield f"`{name}`", "closed form" if RANKING_MODELS.stated(name).get("is_solved") else "in steps"


def _needs() -> Iterator[tuple[str, ...]]:
    for need in NEEDS:
        yield f"`{need.use}`", need.trait.value


def _conflicts() -> Iterator[tuple[str, ...]]:
    for conflict in CONFLICTS:
        yield ", ".join(f"`{use}`" for use in conflict.uses), conflict.because


def _partners() -> Iterator[tuple[str, ...]]:
    for one in PARTNERS:
        yield f"`{one.use}`", ", ".join(f"`{use}`" for use in one.partners)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


if __name__ == "__main__":
    print(support_page(), end="")
