"""State that outlives a process: files, checkpoints, warm starts."""
