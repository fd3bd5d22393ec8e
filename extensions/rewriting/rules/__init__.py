"""Rules of graph rewriting, from each file that sets `RULES`; see `shunter.extensions.rewriting.patterns`."""
