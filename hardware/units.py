"""Units of energy; this module imports no library."""

JOULES_PER_KWH = 3.6e6
