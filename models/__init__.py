"""Models: torch modules and their specifications, independent of orchestrator, tracker and machine."""
