"""How wrong requests are answered: a list of them, run through the command."""
