"""Id maps that are learned from the log, in which values that behave alike share an embedding row."""
