"""Search methods and search spaces by name: who proposes what a search tries, and what there is to try.

The target of a method is called with a `shunter.search.context.SearchContext` and returns a
`shunter.search.protocol.SearchMethod`; `shunter.search.methods.registry` loads it.

Capabilities:
    only_space: The one search space that the method proposes points of, which is searched where the request names
        none; absent if it proposes points of every space.
    one_at_a_time: Whether a search that its minutes alone end tries one point at a time, because the method learns from
        each trial or trains a network of its own beside the trials; false if absent.

The target of a space is a class with `for_dataset`, which makes a `shunter.search.protocol.Space`.
"""

from shunter.registry import Entry, Registry

SEARCH_METHODS = Registry(
    "search method",
    {
        "tpe": Entry(target="shunter.search.methods.registry:build_tpe"),
        "random": Entry(target="shunter.search.methods.registry:build_random"),
        "nsga2": Entry(target="shunter.search.methods.registry:build_nsga2"),
        "dnas": Entry(
            target="shunter.extensions.nas.dnas:Dnas",
            capabilities={"only_space": "architecture", "one_at_a_time": True},
        ),
        "rl": Entry(
            target="shunter.extensions.nas.reinforce.build:controller_for", capabilities={"one_at_a_time": True}
        ),
        "transfer": Entry(target="shunter.extensions.meta_learning.transfer:Transfer"),
    },
    group="shunter.search_methods",
)
SEARCH_SPACES = Registry(
    "search space",
    {
        "settings": Entry(target="shunter.search.space.settings:SearchSpace"),
        "wide": Entry(target="shunter.search.space.settings:SearchSpace"),
        "architecture": Entry(target="shunter.extensions.nas.architecture_space:ArchitectureSpace"),
    },
    group="shunter.search_spaces",
)
