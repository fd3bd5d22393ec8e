"""Making a finished model smaller: where its layers are, what they see, and how two models are compared."""
