"""Architecture search by reinforcement learning, with a warm start from past trials.

`controller` is the search method, constructed by `build`: its `learner` improves a `policy` by `ppo`. `guide` uses past
trials: a `surrogate` predicts the outcome of a point, and an `inverse` model chooses points for a target outcome.
`actions` and `experience` encode points and outcomes as numbers.
"""
