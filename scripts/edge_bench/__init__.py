"""Measures single texts beside floods, huge bodies, deep checks, slow clients and storms."""

SECTIONS = ("flood", "bodies", "deep", "slow", "absent", "unread")
