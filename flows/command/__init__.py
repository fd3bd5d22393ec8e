"""The command `shunter`: its options and its output, and the servers that it starts."""
