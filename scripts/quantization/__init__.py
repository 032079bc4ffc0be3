"""Makes a package's graph in 8 bits, and measures what that costs."""
