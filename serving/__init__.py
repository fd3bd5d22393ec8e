"""Scores over HTTP: protocols, the requests that are scored together, the model that is served and who follows it."""
