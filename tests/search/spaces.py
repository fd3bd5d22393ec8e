"""Spaces whose points train in a moment."""

from shunter.search.space.settings import SearchSpace

SMALL = SearchSpace(
    embedding_dims=(4, 8), top_widths=(8, 16), most_top_layers=2, bottom_widths=(8,), most_bottom_layers=1
)
