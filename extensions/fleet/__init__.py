"""Scheduling of training jobs on a cluster: policies, a simulator, a live driver, learned policies and migration."""
