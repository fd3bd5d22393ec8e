"""Kernels of this project for processors, compiled when the package is installed."""
