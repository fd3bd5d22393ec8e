"""Super-nets: one model that contains every architecture of a space and learns the probabilities of the choices.

Differentiable architecture search for recommenders (Krishna et al., arXiv 2110.14812) on the backbone of a DLRM.
"""
