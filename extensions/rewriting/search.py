"""Search among the programs that rules derive from a program (MetaFlow, section 4: cost-based backtracking search)."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from shunter.extensions.rewriting.application import applied, sites
from shunter.extensions.rewriting.program import PART, Program
from shunter.extensions.rewriting.rule import Rule
from shunter.extensions.rewriting.scheme import step_text

ALPHA = 1.05  # largest cost, relative to the best, of a program that is expanded
BUDGET = 300  # number of programs to derive
KEPT = 5  # number of programs to return, the best first


@dataclass(frozen=True)
class Candidate:
    """Program found by the search.

    Attributes:
        cost: Cost of the program.
        program: Program.
        steps: Rewriting steps from the first program to this program.
    """

    cost: float
    program: Program
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Limits:
    """Limits of the search.

    Attributes:
        alpha: Programs that cost more than this factor times the best are discarded; 1 accepts improvements only.
        budget: Number of programs to derive.
        part: Subgraph to which sites are limited; None for the whole graph.
    """

    alpha: float = ALPHA
    budget: int = BUDGET
    part: int | None = None


BY_DEFAULT = Limits()


def search(
    start: Candidate, rules: Sequence[Rule], cost: Callable[[Program], float], limits: Limits = BY_DEFAULT
) -> list[Candidate]:
    """Return the best programs that rules derive from a program.

    In each round the program with the lowest cost is removed from the queue, and each rule is applied to it at each
    site. A resulting program is added to the queue if it is new and costs less than `alpha` times the best cost so
    far (MetaFlow, algorithm 1).

    Args:
        start: First program, with its steps.
        rules: Rules that may be applied.
        cost: Cost of a program.
        limits: Limits of the search.

    Returns:
        Programs, the best first; `start` may be among them.
    """
    order = count()
    best, made = start, 0
    queue = [(start.cost, next(order), start)]
    seen, found = {start.program.digest()}, [start]
    while queue:
        _, _, at_hand = heapq.heappop(queue)
        if at_hand.cost > limits.alpha * best.cost:
            break  # all other programs cost even more
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
    nodes = program.nodes()
    for rule in rules:
        for site in list(sites(program, rule)):
            if part is None or all(nodes[number].meta.get(PART) == part for number in site):
                yield rule, site


def _changed(
    from_one: Candidate, rule: Rule, site: tuple[int, ...], cost: Callable[[Program], float]
) -> Candidate | None:
    try:
        program = applied(from_one.program, rule, site)
    except (ValueError, RuntimeError):  # the change is invalid at this site
        return None
    return Candidate(cost(program), program, (*from_one.steps, step_text(rule.name, site)))
