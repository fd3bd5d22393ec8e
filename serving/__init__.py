"""HTTP model server: protocols, batching of requests, and the served model with its updates."""
