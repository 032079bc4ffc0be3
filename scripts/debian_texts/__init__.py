"""Texts in many languages from Debian's packages, for benchmarks and for research.

`packages` fetches and unpacks, `manual_pages` takes a page apart, `passages` cuts and sorts text.
"""
