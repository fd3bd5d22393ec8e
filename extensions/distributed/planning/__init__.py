"""Plans that place the tables and layers of a model on several devices, found by simulation before training."""
