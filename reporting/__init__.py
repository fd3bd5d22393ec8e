"""Pages and figures made from results."""
