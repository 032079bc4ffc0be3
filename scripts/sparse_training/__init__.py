"""Trains the default package's sparse head: corpus, hidden states, loss, fit.

The steps, one module each: `packages` (fetch and unpack the documentation), `manual_pages` (pages
as sections and paragraphs), `pages_corpus` (passages, queries and the split by page name),
`hidden_states` (computed once, kept on disk), `contrast` (loss and gradient), `fit` (optimizer and
choice of settings).
"""
