"""How trials are run, recorded, stopped early and resumed."""
