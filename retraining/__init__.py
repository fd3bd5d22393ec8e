"""Learning anew each night: the days of a log, what is unusual about them, challengers and champions."""
