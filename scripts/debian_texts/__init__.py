"""Texts in many languages from Debian's packages, for benchmarks and measurements.

`packages` fetches and unpacks, `manual_pages` takes a page apart, `passages` cuts and sorts text.
"""
