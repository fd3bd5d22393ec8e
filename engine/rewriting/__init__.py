"""How layers are best computed here: operators measured, graphs searched, equality checked, the best measured whole.

The rules and graphs themselves are `shunter.models.rewriting`.
"""
