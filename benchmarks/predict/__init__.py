"""How well steps and memory are predicted before they are run, and whether the predictions choose rightly."""
