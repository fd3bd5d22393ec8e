"""Model families, one module each: the layers above the embedding tables."""
