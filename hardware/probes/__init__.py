"""What a device really does: rates measured in seconds."""
