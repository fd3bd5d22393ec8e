"""What work will take: the cost model of a step in time, memory and watts."""
