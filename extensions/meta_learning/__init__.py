"""Meta-learning: use of earlier searches in a new one.

`features` describes a data set, `past` reads earlier searches, and `neighbours` measures the similarity of data sets.
`points` translates earlier trials to the present space. `portfolio` chooses the points to try first. `transfer` is a
search method that continues to learn from earlier trials. `taught` starts the default search with points from the past.
"""
