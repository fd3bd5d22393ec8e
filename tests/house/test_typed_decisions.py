"""No decision reads a text, and no module has a clock of its own for an end."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.sources import House

TEXTS = frozenset(("because", "explanation", "message", "reason", "sentence", "stopped_because", "words"))
SEARCHES = frozenset(("startswith", "endswith", "find", "index", "removeprefix"))
SENTENCE_SPACES = 2  # a literal with as many is a sentence
# Texts that people or other programs write: requests, files, other libraries' errors, runs of earlier versions.
READERS_OF_FOREIGN_TEXTS = {
    "extensions/distributed/executors/ray/training.py": "torch says that a process is gone by a message alone",
    "engine/overrides.py": "values that a user types",
    "engine/memory.py": "torch says that memory ran out by a RuntimeError's message alone",
    "engine/stopping_text.py": "earlier versions kept the text of a reason alone",
    "hardware/reservation.py": "prints a message once",
    "extensions/distributed/node_readers.py": "compares the content of two files",
    "shunter/parallel.py": "logs a message once",
    "tasks/retention.py": "messages of SQLite",
    "tasks/retries.py": "messages of SQLite",
    "tasks/run_log.py": "ends a line with a full stop",
}


def decisions_on_texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and source of each comparison or search of a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(_is_sentence, sides)) or (any(map(_is_text, sides)) and any(map(_is_string, sides))):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call) and _searches_text(node.func):
            yield node.lineno, ast.unparse(node)


def _searches_text(called: ast.expr) -> bool:
    return isinstance(called, ast.Attribute) and called.attr in SEARCHES and _is_text(called.value)


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BoolOp):
        return any(map(_is_text, node.values))
    if isinstance(node, ast.Call):
        is_message = isinstance(node.func, ast.Name) and node.func.id in {"str", "first_line"}
        return is_message and any(isinstance(one, ast.Name) and one.id == "error" for one in node.args)
    return getattr(node, "attr", getattr(node, "id", None)) in TEXTS


def _is_string(node: ast.expr) -> bool:
    is_constant = isinstance(node, ast.Name) and node.id.isupper()
    return is_constant or (isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(node.value))


def _is_sentence(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and str(node.value).count(" ") >= SENTENCE_SPACES


def test_no_decision_of_the_product_reads_a_text() -> None:
    found = [
        f"{source.path}:{line}: {code}"
        for source in House.read().product.values()
        if source.path not in READERS_OF_FOREIGN_TEXTS
        for line, code in decisions_on_texts(source.tree)
    ]
    assert not found


def test_what_ends_a_training_reads_one_clock() -> None:
    of_time = re.compile(r"StopKind\.(LIMIT|SEARCH_BUDGET|SHARE|EXPLORATION)\b")
    reads_time = re.compile(r"^\s*(import time|from time import)\b", re.MULTILINE)
    found = [
        source.path
        for source in House.read().product.values()
        if source.path != "engine/stopping.py" and of_time.search(source.text) and reads_time.search(source.text)
    ]
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        'trained.stopped_because.startswith("budget")',
        '"The time limit of" in sentence',
        'EXPLORED in (stopped_because or "")',
        'reason == "patience"',
        '"exploration" in str(error)',
    ],
)
def test_decisions_on_texts_are_found(code: str) -> None:
    assert list(decisions_on_texts(ast.parse(code)))


@pytest.mark.parametrize("code", ["reason.kind is StopKind.LIMIT", "reason is None", 'kind == "trial"', "a == b"])
def test_decisions_on_values_are_not(code: str) -> None:
    assert not list(decisions_on_texts(ast.parse(code)))
