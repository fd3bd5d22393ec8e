"""What is searched: settings of the families, architectures, towers."""
