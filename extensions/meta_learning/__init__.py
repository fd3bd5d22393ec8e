"""Meta-learning: use of earlier searches in a new search.

`features` describes a data set, `past` reads earlier searches, and `neighbours` measures the similarity of data sets.
`points` translates earlier trials to the present space. `portfolio` chooses the points to try first. `transfer` is a
search method that uses earlier trials throughout. `taught` starts the default search with points from earlier searches.
"""
