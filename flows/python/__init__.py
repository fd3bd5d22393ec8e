"""Python interface: frames, training runs and models as objects of a script or a notebook."""
