"""What is there: processors, GPUs, their topology, the nodes of a cluster, and what can be set on them."""
