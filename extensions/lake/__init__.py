"""Data in object stores, tables of data lakes, and databases, as local copies in the home."""
