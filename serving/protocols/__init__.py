"""What clients speak: each file reads the bodies of one protocol into a `Table` and writes its answers."""
