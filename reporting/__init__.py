"""Report pages, model cards and figures of results."""
