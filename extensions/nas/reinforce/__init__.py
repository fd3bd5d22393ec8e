"""Architecture search by reinforcement learning, with a warm start from past trials.

`controller` is the search method: its `learner` improves a `policy`. `guide` uses past trials: a `surrogate` predicts
the outcome of a point, and an inverse model chooses points for a target outcome.
`experience` encodes points and outcomes as numbers.
"""
