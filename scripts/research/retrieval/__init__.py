"""Measures retrieval: rankings by several methods, their scores with intervals, and pictures."""
