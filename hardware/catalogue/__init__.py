"""Accelerators one could have: data sheets, prices, and profiles made of them."""
