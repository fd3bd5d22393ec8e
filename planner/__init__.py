"""Planner of one training job: predicts candidates, applies limits, ranks, and explains the choice."""
