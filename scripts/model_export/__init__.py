"""Turns an XLM-R or BERT encoder, with or without a lexical head, into a model package.

The steps, one module each: `snapshot` (a local copy of a model; `config`, `safetensors_file` and
`torch_file` read its parts) or `random_encoder` (seeded weights of any size), `graph` (model.onnx,
in f32 or, through `half`, in 16 bits), `vocabulary`
(tokenizer.json), `package` (all files and manifest.json), `reference` (the same network in plain
numpy), `verify` (the written package against it). `half_package` adds a graph in 16 bits to a
package. `fp8` writes one whose layers multiply 8 bits, which `compensation` rounds.

Arithmetic that the default package shares is imported from `default_package`.
"""
