"""Drives a real server for a long time with everything at once, and counts what became of it."""
