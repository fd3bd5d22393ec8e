"""The rules: each file that sets `RULES` has some (`shunter.extensions.rewriting.rule`)."""
