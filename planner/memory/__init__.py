"""Which embedding table lies on which tier of memory of which node: MTrainS (Kassa et al., arXiv 2305.01515), planned.

`demand` says what a table asks for, from the statistics of the data; `servers` what a node offers; `hits` what a cache
finds; `placement` fills the tiers; `nodes` looks for the fewest nodes and what they take. All of it is simulated.
"""
