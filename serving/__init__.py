"""Model server over HTTP: protocols, batching of requests, and the served model with its updates."""
