"""BERT: bge, all-MiniLM, multilingual-e5-small, mxbai, arctic v1, ms-marco-MiniLM, SPLADE."""

from .family import Family

BERT = Family(
    name="bert",
    model_types=("bert",),
    names={
        "embeddings.": "emb.word=word_embeddings emb.pos=position_embeddings emb.ln=LayerNorm",
        "embeddings.token_": "emb.type=type_embeddings",
        "encoder.layer.#.attention.self.": "q=query k=key v=value",
        "encoder.layer.#.attention.output.": "ao=dense aln=LayerNorm",
        "encoder.layer.#.": "fi=intermediate.dense fo=output.dense oln=output.LayerNorm",
        "*": "dense0=pooler.dense dense1=classifier",
        "*cls.predictions.": "mlm=transform.dense mlm.ln=transform.LayerNorm words=decoder",
    },
)
