"""What can be chosen: accelerators, and the placements on each of them."""
