"""Catalogue of accelerators: data sheets, prices, and hardware profiles derived from both."""
