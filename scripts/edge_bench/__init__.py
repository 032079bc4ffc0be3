"""Measures single texts beside floods, huge bodies, deep checks and slow clients."""

SECTIONS = ("flood", "bodies", "deep", "slow")
