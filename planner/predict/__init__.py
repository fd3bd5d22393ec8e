"""What each candidate is expected to take."""
