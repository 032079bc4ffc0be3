"""Trains the default package's sparse head: corpus, hidden states, loss, fit.

The steps, one module each: `sources` (which of Debian's packages), `manual_collection` and
`guide_collection` (passages and queries of a domain, split by page or section), `guides` (HTML in
sections), `hidden_states` (computed once, kept on disk), `contrast` (loss and gradient), `fit`
(optimizer and choice of settings), `train` (all of it). `starting_head` makes the head that
training starts from.
"""
