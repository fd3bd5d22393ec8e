"""Python's collector of garbage in cycles, kept from walking over what stays."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading(module: str) -> Iterator[None]:
    """Load a library within the block without a look for garbage, and never look through what was loaded again.

    A million objects of modules are no garbage, but each look over all of them takes a tenth of a second, and a start
    gives cause for half a dozen. Garbage that is in a cycle by the end of the block stays, so it does nothing where the
    module is there already.

    Args:
        module: What will have been loaded by the end of the block.
    """
    if module in sys.modules:
        yield
        return
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
