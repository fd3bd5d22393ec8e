"""Where joules come from: sources that count or estimate them, and what becomes of them over time."""
