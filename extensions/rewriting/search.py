"""Search among the programs that rules derive from a program (MetaFlow, section 4: cost-based backtracking search).

A large graph is searched in subgraphs, divided by a minimum cut so that the fewest sites are cut (MetaFlow, section 5).
The capacity of an edge is the number of sites that contain both of its nodes.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, count

from torch import fx

from shunter.extensions.rewriting.patterns import Rule
from shunter.extensions.rewriting.program import PART, Program, operators
from shunter.extensions.rewriting.scheme import applied, sites, step_text

ALPHA = 1.05  # largest cost, relative to the best, of a program that is expanded
BUDGET = 300  # number of programs to derive
KEPT = 5  # number of programs to return, the best first
LARGEST = 30  # largest number of operators in a subgraph
WINDOW = 3  # number of edges on both sides of a cut that are searched again
SHARE = 0.35  # smallest share of the operators on either side of a cut


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


def search_in_parts(
    start: Candidate, rules: Sequence[Rule], cost: Callable[[Program], float], limits: Limits = BY_DEFAULT
) -> list[Candidate]:
    """Run `shunter.extensions.rewriting.search.search` on the subgraphs of a large graph, then around the cuts."""
    parts = divided(start.program, rules, LARGEST)
    if len(parts) == 1:
        return search(start, rules, cost, limits)
    best, bests = start, list[Candidate]()
    budget = max(limits.budget // 2, BUDGET // 4)
    for number, part in enumerate(parts):
        for node in part:
            node.meta[PART] = number
    for number in range(len(parts)):
        best = search(best, rules, cost, Limits(limits.alpha, budget, number))[0]
        bests.append(best)
    _label_windows(best.program)
    found = search(best, rules, cost, Limits(limits.alpha, budget, len(parts)))
    return [*found, *(one for one in reversed(bests[:-1]) if one.steps)]


def divided(program: Program, rules: Sequence[Rule], largest: int) -> list[list[fx.Node]]:
    """Divide the operators of a program into subgraphs of at most `largest` operators, in topological order."""
    # For each pair of operators, the number of sites that contain both.
    every_site = (site for rule in rules for site in rule.find(program))
    crossing = Counter(frozenset(pair) for site in every_site for pair in combinations(site, 2))
    waiting, done = [list(operators(program))], []
    while waiting:
        part = waiting.pop()
        if len(part) <= largest:
            done.append(part)
        else:
            waiting += _cut(part, crossing)
    order = {node: number for number, node in enumerate(program.graph.nodes)}
    return sorted(done, key=lambda part: order[part[0]])


def _cut(part: list[fx.Node], crossing: Counter[frozenset[fx.Node]]) -> list[list[fx.Node]]:
    """Divide a subgraph by a minimum cut into two parts, each with at least the share `SHARE` of the nodes."""
    import networkx

    inside, graph = set(part), networkx.Graph()
    edge = max(1, int(len(part) * SHARE))

    def connect(one: object, other: object, capacity: float) -> None:
        before = graph.get_edge_data(one, other, {"capacity": 0.0})["capacity"]
        graph.add_edge(one, other, capacity=before + capacity)

    for node in part:
        for source in inside.intersection(node.all_input_nodes):
            connect(source, node, 0.01)  # among equal cuts, prefer the cut through fewer tensors
    for pair, times in crossing.items():
        if pair <= inside:
            one, other = pair
            connect(one, other, float(times))
    for node in part[:edge]:
        connect("source", node, float("inf"))
    for node in part[-edge:]:
        connect(node, "sink", float("inf"))
    for node in part:
        if node not in graph:
            connect("source", node, 0.01)
    _, (left, right) = networkx.minimum_cut(graph, "source", "sink")
    return [[node for node in part if node in side] for side in (right, left)]


def _label_windows(program: Program) -> None:
    """Label all nodes near the cuts between subgraphs as an additional subgraph."""
    edges = [
        (source, node)
        for node in program.graph.nodes
        for source in node.all_input_nodes
        if None is not node.meta.get(PART) != source.meta.get(PART) is not None
    ]
    near = {node for pair in edges for node in pair}
    for _ in range(WINDOW - 1):
        near |= {other for node in near for other in (*node.all_input_nodes, *node.users)}
    number = 1 + max((node.meta[PART] for node in program.graph.nodes if node.meta.get(PART) is not None), default=0)
    for node in near:
        node.meta[PART] = number
