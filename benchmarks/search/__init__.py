"""Ways of searching compared: on real trainings, on published tables, and each for what it is said to save."""
