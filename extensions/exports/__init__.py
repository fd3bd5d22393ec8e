"""Exports of registered models for scoring without Shunter."""
