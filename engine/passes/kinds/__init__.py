"""The passes: each file that sets `PASS` is one (`shunter.engine.passes.registry`)."""
