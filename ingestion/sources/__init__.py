"""Sources of rows: file formats, named data sets, days, and the guard that limits what is read."""
