"""The rules: each file that sets `RULES` has some (`models.rewriting.rule`)."""
