"""The rules that there are, and programs after they have been applied."""

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from functools import lru_cache

from torch import fx

from shunter.extensions.rewriting import rules
from shunter.extensions.rewriting.program import PART, Program, digests
from shunter.extensions.rewriting.rule import Rule


@lru_cache(maxsize=1)
def known_rules() -> dict[str, Rule]:
    """All rules by name: those of every file of `extensions/rewriting/rules`."""
    names = sorted(module.name for module in pkgutil.iter_modules(rules.__path__))
    modules = [importlib.import_module(f"{rules.__name__}.{name}") for name in names]
    found: list[Rule] = [rule for module in modules for rule in module.RULES]
    return {rule.name: rule for rule in found}


def applied(program: Program, rule: Rule, site: Sequence[int]) -> Program:
    """A program with a rule applied at a site, tidied.

    Args:
        program: Stays as it is.
        rule: The rule.
        site: Numbers of the nodes.

    Raises:
        ValueError: The rule does not fit there.
    """
    made = program.copy()
    nodes = made.names()
    if not all(0 <= number < len(nodes) for number in site):
        raise ValueError(f"the graph has no nodes {list(site)}")
    places = tuple(nodes[number] for number in site)
    if places not in set(rule.find(made)):
        raise ValueError(f"the rule {rule.name} does not fit at {list(site)}")
    part = places[-1].meta.get(PART)
    rule.apply(made, places)
    for node in made.graph.nodes:
        node.meta.setdefault(PART, part)
    tidied(made)
    return made


def tidied(program: Program) -> None:
    """Apply in place what never costs anything, until nothing of it is left to do."""
    tidying = [rule for rule in known_rules().values() if rule.is_tidying]
    program.sweep()
    program.constants_first()
    program.infer()
    _share_equal(program)
    while True:
        for rule in tidying:
            site = next(iter(rule.find(program)), None)
            if site is not None:
                part = site[-1].meta.get(PART)
                rule.apply(program, site)
                for node in program.graph.nodes:
                    node.meta.setdefault(PART, part)
                program.sweep()
                program.infer()
                break
        else:
            _share_equal(program)
            program.infer()
            return


def _share_equal(program: Program) -> None:
    """Compute once what is computed twice alike."""
    first: dict[str, fx.Node] = {}
    for node, digest in digests(program.graph.nodes).items():
        if node.op in ("placeholder", "output", "call_module"):
            continue  # a module may draw random numbers
        same = first.setdefault(digest, node)
        if same is not node:
            node.replace_all_uses_with(same)
    program.sweep()


def sites(program: Program, rule: Rule) -> Iterator[tuple[int, ...]]:
    """Where a rule fits, as numbers of nodes."""
    numbers = {node: number for number, node in enumerate(program.graph.nodes)}
    for site in rule.find(program):
        yield tuple(numbers[node] for node in site)
