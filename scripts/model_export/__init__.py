"""Turns a published encoder, with or without a lexical head, into a model package.

`snapshot` opens a local copy of a model: `configuration` reads config.json, `stored` and
`torch_file` read weights. `random_encoder` has seeded weights of any size. `half` and `fp8` write
graphs in 16 and 8 bits; `half_package` adds one to a package. All else is shared with the default
package.
"""
