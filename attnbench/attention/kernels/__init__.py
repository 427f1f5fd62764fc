"""Passes that are written by hand, and what several mechanisms are made of."""
