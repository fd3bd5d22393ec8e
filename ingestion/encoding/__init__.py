"""How values become numbers: columns, vocabularies, labels, histories, the split."""
