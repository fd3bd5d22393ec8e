"""Predicates on the rows of a log, such as `day >= '2026-03-01' and shop in (3, 5)`: syntax tree and parser.

A predicate compares columns with literals and calls no functions. Predicates from other users are therefore safe.
"""

import re
from dataclasses import dataclass
from typing import Literal

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null"]
_LONGEST_TEXT = 4_000
_DEEPEST = 40
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>\"[^\"]+\")|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<word>[^\W\d][\w.]*)|(?P<mark><=|>=|<>|!=|==|[=<>(),]))"
)
_MARKS: dict[str, Operator] = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
EXAMPLE = "day >= '2026-03-01' and shop in (3, 5)"


@dataclass(frozen=True)
class Comparison:
    """Comparison of a column with literals.

    Attributes:
        column: Name of the column.
        operator: Operator.
        literals: Literals as written, without quotes; none for `is null`.
    """

    column: str
    operator: Operator
    literals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Junction:
    """Conjunction or disjunction of predicates."""

    operator: Literal["and", "or"]
    parts: "tuple[Predicate, ...]"


Predicate = Comparison | Junction


def parse_predicate(text: str) -> Predicate:
    """Parse a predicate that selects rows.

    Raises:
        PredicateError: The text is no predicate; the message names the position of the fault.
    """
    if len(text) > _LONGEST_TEXT:
        raise PredicateError(f"a predicate may have at most {_LONGEST_TEXT:,} characters: write a shorter one")
    return _Parser(text).parse()


def columns_of(predicate: Predicate) -> tuple[str, ...]:
    """Return the distinct columns of a predicate."""
    if isinstance(predicate, Comparison):
        return (predicate.column,)
    return tuple(dict.fromkeys(name for part in predicate.parts for name in columns_of(part)))


def both(first: str | None, second: str | None) -> str | None:
    """Return the conjunction of two predicates; None stands for a predicate that is always true."""
    if first is None or second is None or first == second:
        return first or second
    return f"({first}) and ({second})"


class PredicateError(ValueError):
    """Error that a text is not a valid predicate."""


class _Parser:
    """Recursive-descent parser of a predicate's text."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._at, self._depth = text, list[tuple[str, str]](), 0, 0
        place = 0
        while text[place:].strip():
            if (found := _TOKEN.match(text, place)) is None:
                raise self._error(text[place:].strip()[:20])
            assert found.lastgroup is not None
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            place = found.end()

    def parse(self) -> Predicate:
        found = self._combined("or")
        if self._at < len(self._tokens):
            raise self._error(self._tokens[self._at][1])
        return found

    def _combined(self, operator: Literal["and", "or"]) -> Predicate:
        parts = [self._part(operator)]
        while self._takes(operator):
            parts.append(self._part(operator))
        return parts[0] if len(parts) == 1 else Junction(operator, tuple(parts))

    def _part(self, operator: Literal["and", "or"]) -> Predicate:
        if operator == "or":
            return self._combined("and")
        if not self._takes("("):
            return self._comparison()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error("(")
        found = self._combined("or")
        self._expect(")")
        self._depth -= 1
        return found

    def _comparison(self) -> Comparison:
        kind, column = self._next()
        if kind not in ("word", "quoted") or column.lower() in ("and", "or", "not", "in", "is", "null"):
            raise self._error(column)
        column = column.strip('"')
        if self._takes("is"):
            operator = "is not null" if self._takes("not") else "is null"
            self._expect("null")
            return Comparison(column, operator)
        is_not = self._takes("not")
        if is_not or self._is_next("in"):
            self._expect("in")
            self._expect("(")
            literals = [self._literal()]
            while self._takes(","):
                literals.append(self._literal())
            self._expect(")")
            return Comparison(column, "not in" if is_not else "in", tuple(literals))
        _, mark = self._next()
        if mark not in _MARKS:
            raise self._error(mark)
        return Comparison(column, _MARKS[mark], (self._literal(),))

    def _literal(self) -> str:
        kind, text = self._next()
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind == "number" or text.lower() in ("true", "false"):
            return text
        raise self._error(text)

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise self._error("its end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _is_next(self, text: str) -> bool:
        kind, found = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        return kind in ("word", "mark") and found.lower() == text

    def _takes(self, text: str) -> bool:
        found = self._is_next(text)
        self._at += found
        return found

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise self._error(self._tokens[self._at][1] if self._at < len(self._tokens) else "its end")

    def _error(self, found: str) -> PredicateError:
        return PredicateError(
            f"the predicate {self._text[:80]!r} cannot be read at {found!r}: compare columns with texts in single "
            f"quotes or numbers, as in {EXAMPLE}"
        )
