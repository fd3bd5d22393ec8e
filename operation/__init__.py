"""Operation of a machine's servers, worker and deployments: `shunter up`, `down`, `status` and `ui`."""
