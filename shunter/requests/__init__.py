"""What a user asks for: one model for the command line, the Prefect form and Python, by concern."""
