"""List of the rules, and application of rules to programs."""

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from functools import lru_cache

from torch import fx

from shunter.extensions.rewriting import rules
from shunter.extensions.rewriting.patterns import Rule, Site
from shunter.extensions.rewriting.program import PART, Program, digests


@lru_cache(maxsize=1)
def known_rules() -> dict[str, Rule]:
    """Return all rules by name, from all files of `extensions/rewriting/rules`."""
    names = sorted(module.name for module in pkgutil.iter_modules(rules.__path__))
    modules = [importlib.import_module(f"{rules.__name__}.{name}") for name in names]
    found: list[Rule] = [rule for module in modules for rule in module.RULES]
    return {rule.name: rule for rule in found}


def applied(program: Program, rule: Rule, site: Sequence[int]) -> Program:
    """Apply a rule at a site of a program, tidy the result, and return it as a new program.

    Args:
        program: Program, not changed.
        rule: Rule to apply.
        site: Indices, in `Program.nodes`, of the nodes that the rule changes.

    Raises:
        ValueError: The rule does not fit at this site.
    """
    made = program.copy()
    nodes = made.nodes()
    if not all(0 <= number < len(nodes) for number in site):
        raise ValueError(f"the graph has no nodes {list(site)}")
    places = tuple(nodes[number] for number in site)
    if places not in set(rule.find(made)):
        raise ValueError(f"the rewriting rule {rule.name} does not apply to the nodes {list(site)} of the graph")
    _apply(made, rule, places)
    tidied(made)
    return made


def _apply(program: Program, rule: Rule, site: Site) -> None:
    """Apply a rule in place; new nodes belong to the subgraph of the site."""
    part = site[-1].meta.get(PART)
    rule.apply(program, site)
    for node in program.graph.nodes:
        node.meta.setdefault(PART, part)


def tidied(program: Program) -> None:
    """Apply, in place, the rules that never make a program slower, until none of them fits."""
    tidying = [rule for rule in known_rules().values() if rule.is_tidying]
    program.sweep()
    program.constants_first()
    program.infer()
    _share_equal(program)
    while True:
        for rule in tidying:
            site = next(iter(rule.find(program)), None)
            if site is not None:
                _apply(program, rule, site)
                program.sweep()
                program.infer()
                break
        else:
            _share_equal(program)
            program.infer()
            return


def _share_equal(program: Program) -> None:
    """Merge equal nodes, so that each value is computed once."""
    first: dict[str, fx.Node] = {}
    for node, digest in digests(program.graph.nodes).items():
        if node.op in ("placeholder", "output", "call_module"):
            continue  # calls of modules are not merged, since a module such as dropout may be random
        same = first.setdefault(digest, node)
        if same is not node:
            node.replace_all_uses_with(same)
    program.sweep()


def sites(program: Program, rule: Rule) -> Iterator[tuple[int, ...]]:
    """Yield the sites where a rule fits, as indices of nodes."""
    numbers = {node: number for number, node in enumerate(program.graph.nodes)}
    for site in rule.find(program):
        yield tuple(numbers[node] for node in site)
