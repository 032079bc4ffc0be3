"""BERT: bge, all-MiniLM, multilingual-e5-small, mxbai, arctic v1, ms-marco-MiniLM, SPLADE."""

from .family import Family, Scorer, WordHead

BERT = Family(
    name="bert",
    model_types=("bert",),
    names={
        "embeddings.": "emb.word=word_embeddings emb.pos=position_embeddings emb.ln=LayerNorm",
        "embeddings.token_": "emb.type=type_embeddings",
        "encoder.layer.#.attention.self.": "q=query k=key v=value",
        "encoder.layer.#.attention.output.": "ao=dense aln=LayerNorm",
        "encoder.layer.#.": "fi=intermediate.dense fo=output.dense oln=output.LayerNorm",
    },
    scorer=Scorer("pooler.dense", "classifier"),
    words=WordHead(
        inner="cls.predictions.transform.dense",
        norm="cls.predictions.transform.LayerNorm",
        outer="cls.predictions.decoder",
        bias="cls.predictions",
    ),
)
