"""Where rows come from: formats, named data sets, days, and the guard before them."""
