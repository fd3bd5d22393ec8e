"""Command `shunter`: its options, its output, and the servers that it starts."""
