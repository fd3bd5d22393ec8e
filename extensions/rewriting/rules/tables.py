"""Rules R3 and R10: concatenate embedding tables by rows, for a single lookup."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, fx, nn

from shunter.extensions.rewriting.patterns import Rule, Site, call
from shunter.extensions.rewriting.program import Program, value_of

# Arguments of `embedding_bag` after its offsets, with their values for plain sums or means, which the rules support.
PLAIN = {"max_norm": None, "scale_grad_by_freq": False, "per_sample_weights": None, "include_last_offset": False}
NAMES = ("max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse", "per_sample_weights", "include_last_offset")


def batched_bags(
    ids: Sequence[Tensor], offsets: Sequence[Tensor], weight: Tensor, starts: Sequence[int], mode: str
) -> Tensor:
    """Look up the bags of several tables that are concatenated by rows: `[tables, batch, dim]`.

    Args:
        ids: Ids for each table, `[ids]` each.
        offsets: Start of each bag for each table, `[batch]` each.
        weight: Rows of all tables, `[rows, dim]`.
        starts: First row of each table.
        mode: `sum` or `mean`.
    """
    lengths = [0, *accumulate(len(one) for one in ids)]
    values = torch.cat([one + start if start else one for one, start in zip(ids, starts, strict=True)])
    begins = torch.cat([one + length if length else one for one, length in zip(offsets, lengths, strict=False)])
    found = nn.functional.embedding_bag(values, weight, begins, mode=mode)
    return found.view(len(ids), -1, weight.shape[1])


def mean_of_sums(sums: Tensor, ids: Tensor, offsets: Tensor) -> Tensor:
    """Convert sums of bags to means; an empty bag stays zero."""
    ends = torch.cat([offsets[1:], offsets.new_full((1,), len(ids))])
    return sums / (ends - offsets).clamp(min=1).unsqueeze(1).to(sums.dtype)


def bag_options(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of an `embedding_bag` after its offsets."""
    given = dict(zip(NAMES, node.args[3:], strict=False))
    return {"mode": "mean", **given, **{key: node.kwargs[key] for key in node.kwargs if key in NAMES}}


def offsets_of(node: fx.Node) -> Any:
    """Return the offsets of an `embedding_bag`."""
    return node.args[2] if len(node.args) > 2 else node.kwargs.get("offsets")


def bags(program: Program) -> Iterator[fx.Node]:
    """Yield the `embedding_bag` calls that pool by sum or mean and have no per-sample weights or other options."""
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target is nn.functional.embedding_bag:
            options = bag_options(node)
            is_plain = all(options.get(name, value) == value for name, value in PLAIN.items())
            if is_plain and isinstance(offsets_of(node), fx.Node) and options["mode"] in ("sum", "mean"):
                yield node


class BatchTables(Rule):
    """Rule that merges lookups in several tables into one lookup in a table of all rows."""

    name, number = "batch_tables", "R3"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield lookups in tables with the same width and pooling."""
        alike: dict[tuple[object, ...], list[fx.Node]] = defaultdict(list)
        for node in bags(program):
            weight = value_of(node.args[1])  # pyright: ignore[reportArgumentType]
            alike[weight.shape[1], bag_options(node)["mode"], value_of(node).shape].append(node)
        yield from (tuple(nodes) for nodes in alike.values() if len(nodes) > 1)

    def apply(self, program: Program, site: Site) -> None:
        """Insert one lookup after the inputs of all replaced lookups."""
        rows = [value_of(node.args[1]).shape[0] for node in site]  # pyright: ignore[reportArgumentType]
        starts = tuple(accumulate(rows[:-1], initial=0))
        mode = bag_options(site[0])["mode"]
        order = {node: number for number, node in enumerate(program.graph.nodes)}
        readers = min((user for node in site for user in node.users), key=order.__getitem__)
        last = max(site, key=order.__getitem__)
        if order[readers] < order[last]:
            raise ValueError("the result of one lookup is used before another lookup, so they cannot be merged")
        with program.graph.inserting_after(last):
            anchor = call(program, batched_bags)
        with program.graph.inserting_before(anchor):
            weight = call(program, torch.cat, [node.args[1] for node in site])
        anchor.args = ([node.args[0] for node in site], [offsets_of(node) for node in site], weight, starts, mode)
        with program.graph.inserting_before(anchor.next):
            for number, node in enumerate(site):
                node.replace_all_uses_with(call(program, torch.select, anchor, 0, number))


class MeanAsSum(Rule):
    """Rule that computes a mean as a sum divided by the length, so that it can be merged with sums."""

    name, number = "mean_as_sum", "R10"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield lookups with mean pooling."""
        yield from ((node,) for node in bags(program) if bag_options(node)["mode"] == "mean")

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Insert the sum and the division."""
        (node,) = site
        ids, offsets = node.args[0], offsets_of(node)
        sums = call(program, nn.functional.embedding_bag, ids, node.args[1], offsets, mode="sum")
        return call(program, mean_of_sums, sums, ids, offsets)


RULES = (BatchTables(), MeanAsSum())
