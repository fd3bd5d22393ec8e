"""Extensions of the product, one folder each: the core never imports them, and any of them can be deleted.

The core knows an extension by the names that its registries list (`shunter.registry`).
"""
