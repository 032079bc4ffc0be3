"""Measures single texts beside floods, huge bodies, deep checks and slow clients."""
