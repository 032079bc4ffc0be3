"""Turns a published encoder, with or without a lexical head, into a model package.

`hub` fetches a model by its name, `kept` knows the packages that are made already. `snapshot` opens
a local copy: `configuration`, `sentence` and `modules` read what it says of itself, and `stored`
its weights. `half` makes graphs in 16 bits of f32 ones. All else is shared with the default one.
"""
