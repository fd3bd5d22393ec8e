"""The learned policy as it decides: what its agents see, their networks, the limits that they keep, and its file."""
