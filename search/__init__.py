"""What is tried: spaces, studies, methods that propose, what past studies teach."""
