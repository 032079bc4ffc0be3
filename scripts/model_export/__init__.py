"""Turns an XLM-R or BERT encoder, with or without a lexical head, into a model package.

`snapshot` opens a local copy of a model; `config`, `safetensors_file` and `torch_file` read its
parts. `random_encoder` has seeded weights of any size. `half` and `fp8` write graphs in 16 and 8
bits, which `compensation` rounds; `half_package` adds one to a package. All else is shared with the
default package.
"""
