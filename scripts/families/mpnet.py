"""MPNet: all-mpnet-base-v2."""

from .family import REQUIRED, Family

MPNET = Family(
    name="mpnet",
    model_types=("mpnet",),
    names={
        "embeddings.": "emb.word=word_embeddings emb.pos=position_embeddings emb.ln=LayerNorm",
        "encoder.": "emb.rel=relative_attention_bias",
        "encoder.layer.#.attention.": "q=attn.q k=attn.k v=attn.v ao=attn.o aln=LayerNorm",
        "encoder.layer.#.": "fi=intermediate.dense fo=output.dense oln=output.LayerNorm",
    },
    required=REQUIRED | {"relative_attention_num_buckets": (32, None)},
    padding_has_positions=True,
)
