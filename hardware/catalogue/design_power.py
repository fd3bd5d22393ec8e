"""What a processor is taken to draw at rest, as a share of its design power."""

# A server processor at rest draws somewhat less than a third of its peak: Barroso and Hoelzle, "The Case for
# Energy-Proportional Computing", IEEE Computer 40(12), 2007. Servers of today lie between the two bounds.
IDLE_SHARE = 0.3
IDLE_SHARE_BOUNDS = (0.1, 0.5)
