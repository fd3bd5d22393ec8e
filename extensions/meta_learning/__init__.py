"""Meta-learning: use of earlier searches in a new search.

`features` describes a data set and measures the similarity of data sets, and `past` reads earlier searches. `points`
translates earlier trials to the present space. `portfolio` chooses the points to try first. `transfer` has a search
method that uses earlier trials throughout, and one that starts the default search with points from earlier searches.
"""
