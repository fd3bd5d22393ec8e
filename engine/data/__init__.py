"""Input pipeline: data sets as arrays, batch loaders and prefetch."""
