"""Rules: each file that sets `RULES` contributes some (`shunter.extensions.rewriting.rule`)."""
