"""Search methods and search spaces by name.

The target of a method is called with a `shunter.search.context.SearchContext` and returns a
`shunter.search.protocol.SearchMethod`; `shunter.search.methods.registry` loads it.

Capabilities:
    only_space: The only search space of the method, which is also its default; absent if the method works on every
        space.
    one_at_a_time: Whether a search that only a time budget ends tries one point at a time. The reason is that the
        method learns from each trial, or trains its own network beside the trials. False if absent.

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
            target="shunter.extensions.nas.reinforce.controller:controller_for", capabilities={"one_at_a_time": True}
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
