"""Drives the running server over HTTP with real texts, and judges what it sees."""
