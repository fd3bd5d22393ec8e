"""Python interface: frames, trainings and models as objects of a script or a notebook."""
