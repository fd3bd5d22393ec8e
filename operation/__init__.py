"""Application that runs a machine's servers, worker and deployments: `shunter up`, `down`, `status` and `ui`."""
