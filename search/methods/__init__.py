"""Who proposes what is tried next: one protocol, a file for each method."""
