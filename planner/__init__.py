"""One training: candidates are predicted, limited, ranked, and the choice explained."""
