"""Search of large graphs in subgraphs, divided so that the fewest sites are cut (MetaFlow, section 5).

The graph is divided by a minimum cut. The capacity of an edge is the number of sites that contain both of its nodes.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations

from torch import fx

from shunter.extensions.rewriting.program import PART, Program, operators
from shunter.extensions.rewriting.rule import Rule
from shunter.extensions.rewriting.search import BUDGET, BY_DEFAULT, Candidate, Limits, search

LARGEST = 30  # largest number of operators in a subgraph
WINDOW = 3  # number of edges on both sides of a cut that are searched again
SHARE = 0.35  # smallest share of the operators on either side of a cut


def search_in_parts(
    start: Candidate, rules: Sequence[Rule], cost: Callable[[Program], float], limits: Limits = BY_DEFAULT
) -> list[Candidate]:
    """Run `shunter.extensions.rewriting.search.search` on the subgraphs of a large graph, then around the cuts."""
    parts = divided(start.program, rules, LARGEST)
    if len(parts) == 1:
        return search(start, rules, cost, limits)
    best, bests = start, list[Candidate]()
    budget = max(limits.budget // 2, BUDGET // 4)
    _label(best.program, parts)
    for number in range(len(parts)):
        best = search(best, rules, cost, Limits(limits.alpha, budget, number))[0]
        bests.append(best)
    _label_windows(best.program)
    found = search(best, rules, cost, Limits(limits.alpha, budget, len(parts)))
    return [*found, *(one for one in reversed(bests[:-1]) if one.steps)]


def divided(program: Program, rules: Sequence[Rule], largest: int) -> list[list[fx.Node]]:
    """Divide the operators of a program into subgraphs of at most `largest` operators, in topological order."""
    crossing = _sites_between(program, rules)
    waiting, done = [list(operators(program))], []
    while waiting:
        part = waiting.pop()
        if len(part) <= largest:
            done.append(part)
        else:
            waiting += _cut(part, crossing)
    order = {node: number for number, node in enumerate(program.graph.nodes)}
    return sorted(done, key=lambda part: order[part[0]])


def _sites_between(program: Program, rules: Sequence[Rule]) -> Counter[frozenset[fx.Node]]:
    """Count for each pair of operators the sites that contain both operators."""
    found: Counter[frozenset[fx.Node]] = Counter()
    for rule in rules:
        for site in rule.find(program):
            found.update(frozenset(pair) for pair in combinations(site, 2))
    return found


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


def _label(program: Program, parts: Sequence[Sequence[fx.Node]]) -> None:
    for number, part in enumerate(parts):
        for node in part:
            node.meta[PART] = number


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
