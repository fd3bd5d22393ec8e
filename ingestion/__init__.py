"""Click logs become arrays: reading, checking, encoding, splitting, caching by content."""
