"""The former place of `tracking`: models that were registered before it moved name their loader here."""
