"""Carries out a sweep for the verbs that are one: here or on a cluster, or only plans it."""
