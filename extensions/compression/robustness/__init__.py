"""Quality of a trained model under memory faults, and detection of these faults."""
