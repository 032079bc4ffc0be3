"""Independent ways to what the server answers, for golden files and tests."""
