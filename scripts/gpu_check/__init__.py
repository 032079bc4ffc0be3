"""Checks of TensorRT on a machine with a GPU; the standard library is all it needs."""
