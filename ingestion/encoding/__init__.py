"""Encoding of raw values as numbers and ids: columns, vocabularies, labels, histories and the split."""
