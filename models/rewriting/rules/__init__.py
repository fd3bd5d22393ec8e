"""The rules: each file that sets `RULES` has some (`shunter.models.rewriting.rule`)."""
