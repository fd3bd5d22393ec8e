"""Probes that measure a device's actual rates within seconds."""
