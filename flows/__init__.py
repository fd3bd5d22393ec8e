"""What a user starts. One file is one flow; `cli` is the command `shunter`."""
