"""What earlier searches teach a new one.

`features` says what a data set is like, `past` reads back earlier searches, `neighbours` judges which of them
were of data most like this. Their trials are written in the terms of the present space by `points`; `portfolio` chooses
from them the points to try first, and `transfer` is a method of searching that goes on learning from them. `taught`
begins the default search with what the past teaches.
"""
