"""What is trained: torch modules and their specifications. Knows no orchestrator, no tracker and no machine."""
