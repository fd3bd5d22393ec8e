"""Where every table and layer of a model goes on several devices: found by simulation, before anything is trained."""
