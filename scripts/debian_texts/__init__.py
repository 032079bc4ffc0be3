"""Texts in many languages from Debian's packages, for benchmarks and measurements.

`packages` fetches and unpacks, `guide` takes the installation guide apart, `passages` cuts text.
"""
