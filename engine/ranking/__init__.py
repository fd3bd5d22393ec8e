"""Learning to rank: graph models are trained by comparing what a user chose with what they did not."""
