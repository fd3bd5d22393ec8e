"""What errors of the memory do to a finished model, and what a detector of them saves."""
