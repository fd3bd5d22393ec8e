"""Short measurements of real training steps on this machine."""
