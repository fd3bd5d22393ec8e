"""The passes: each file that sets `PASS` is one (`engine.passes.registry`)."""
