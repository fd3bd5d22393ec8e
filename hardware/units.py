"""Units of energy; this module needs no library."""

JOULES_PER_KWH = 3.6e6
