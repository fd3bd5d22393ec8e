"""The command `shunter`: its options, what it prints, and the servers and deployments that it starts."""
