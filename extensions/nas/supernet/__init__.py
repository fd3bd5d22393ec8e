"""Super-nets: one model that holds every architecture of a space, and learns which of them to be.

Differentiable architecture search for recommenders (Krishna et al., arXiv 2110.14812) on the backbone of a DLRM.
"""
