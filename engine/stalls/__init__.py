"""Where the time of a training step goes: the same steps with one thing changed at a time."""
