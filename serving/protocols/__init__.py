"""HTTP protocols: each module parses the bodies of one protocol into a `Table` and writes its answers."""
