"""Exports of registered models that need no Shunter where they score."""
