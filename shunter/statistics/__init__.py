"""Statistics that several parts of the project share; numpy alone is loaded with them."""
