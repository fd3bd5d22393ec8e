"""Architecture search by reinforcement learning, which starts from what past trials teach.

`controller` is the method of searching, put together by `build`: its `learner` improves a `policy` by `ppo`. What past
trials teach is in `guide`: a `surrogate` that predicts the outcome of a point, and an `inverse` model that chooses
points for a wanted outcome. `actions` and `experience` write points and outcomes as numbers.
"""
