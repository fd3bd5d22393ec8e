"""Search among the programs that rules make of one (MetaFlow, section 4: backtracking by cost)."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from shunter.extensions.rewriting.application import applied, sites
from shunter.extensions.rewriting.program import PART, Program
from shunter.extensions.rewriting.rule import Rule
from shunter.extensions.rewriting.scheme import step_text

ALPHA = 1.05  # how much worse than the best a program may be that is gone on from
BUDGET = 300  # programs that are made
KEPT = 5  # programs that are given back, the best first


@dataclass(frozen=True)
class Candidate:
    """A program that the search has found.

    Attributes:
        cost: Its cost.
        program: The program.
        steps: How the rules make it of the first one.
    """

    cost: float
    program: Program
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Limits:
    """How far a search goes.

    Attributes:
        alpha: Programs that cost more than this times the best are given up; 1 takes improvements alone.
        budget: Programs that are made.
        part: Part of the graph that sites lie in; None is all of it.
    """

    alpha: float = ALPHA
    budget: int = BUDGET
    part: int | None = None


BY_DEFAULT = Limits()


def search(
    start: Candidate, rules: Sequence[Rule], cost: Callable[[Program], float], limits: Limits = BY_DEFAULT
) -> list[Candidate]:
    """The best programs that rules make of one.

    The program of least cost is taken from the queue, and all that a rule makes of it goes into the queue where it
    costs less than `alpha` times the best so far and is not known yet (MetaFlow, algorithm 1).

    Args:
        start: The program to begin with, and its steps.
        rules: Rules that may be applied.
        cost: Cost of a program.
        limits: How far to go.

    Returns:
        The first of them is the best; `start` may be among them.
    """
    order = count()
    best, made = start, 0
    queue = [(start.cost, next(order), start)]
    seen, found = {start.program.digest()}, [start]
    while queue:
        _, _, at_hand = heapq.heappop(queue)
        if at_hand.cost > limits.alpha * best.cost:
            break  # and so does all that is left
        for rule, site in _choices(at_hand.program, rules, limits.part):
            if made >= limits.budget:
                return _best(found)
            made += 1
            next_one = _changed(at_hand, rule, site, cost)
            if next_one is None or (digest := next_one.program.digest()) in seen:
                continue
            seen.add(digest)
            if next_one.cost < limits.alpha * best.cost:
                heapq.heappush(queue, (next_one.cost, next(order), next_one))
                found.append(next_one)
            if next_one.cost < best.cost:
                best = next_one
    return _best(found)


def _best(found: list[Candidate]) -> list[Candidate]:
    return sorted(found, key=lambda one: one.cost)[:KEPT]


def _choices(program: Program, rules: Sequence[Rule], part: int | None) -> Iterator[tuple[Rule, tuple[int, ...]]]:
    nodes = program.names()
    for rule in rules:
        for site in list(sites(program, rule)):
            if part is None or all(nodes[number].meta.get(PART) == part for number in site):
                yield rule, site


def _changed(
    from_one: Candidate, rule: Rule, site: tuple[int, ...], cost: Callable[[Program], float]
) -> Candidate | None:
    try:
        program = applied(from_one.program, rule, site)
    except (ValueError, RuntimeError):  # the site does not bear the change after all
        return None
    return Candidate(cost(program), program, (*from_one.steps, step_text(rule.name, site)))
