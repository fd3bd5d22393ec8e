"""The embedding kernels that work on this machine."""

from typing import get_args

from shunter.models.embeddings.kernel_choice import Chosen
from shunter.models.native.library import library

KERNELS: tuple[Chosen, ...] = tuple(one for one in get_args(Chosen) if one != "native" or library() is not None)
