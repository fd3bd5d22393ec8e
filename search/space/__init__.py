"""Search spaces: settings of the families, architectures, towers."""
