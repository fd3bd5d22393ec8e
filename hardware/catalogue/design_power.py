"""Assumed idle power of a processor, as a share of its thermal design power."""

# A server processor at rest draws somewhat less than a third of its peak: Barroso and Hoelzle, "The Case for
# Energy-Proportional Computing", IEEE Computer 40(12), 2007. Today's servers are between the two bounds.
IDLE_SHARE = 0.3
IDLE_SHARE_BOUNDS = (0.1, 0.5)
