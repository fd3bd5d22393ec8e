"""Seconds and joules from raw file to trained model, side by side with the libraries that users pick today."""
