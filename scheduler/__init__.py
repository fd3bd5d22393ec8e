"""Many trainings, one cluster: who runs where and when. Policies, a simulator, traces and what a schedule came to."""
