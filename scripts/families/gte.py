"""GTE's own layers: gte-multilingual-base and its re-ranker, snowflake-arctic-embed-m-v2.0."""

from .family import FULL, OFF, Family

GTE = Family(
    name="gte",
    model_types=("new", "gte"),
    names={
        "embeddings.": "emb.word=word_embeddings emb.type=token_type_embeddings emb.ln=LayerNorm",
        "encoder.layer.#.attention.": "q+k+v=qkv_proj ao=o_proj",
        "encoder.layer.#.": "aln=attn_ln fi+fg=mlp.up_gate_proj fo=mlp.down_proj oln=mlp_ln",
        "*": "dense0=pooler.dense dense1=classifier",
    },
    required={
        "hidden_act": ("gelu", None),
        "position_embedding_type": ("rope", None),
        "layer_norm_type": ("layer_norm", None),
        "pack_qkv": (True, None),
        "logn_attention_scale": OFF,
    },
    biased=frozenset(("q", "k", "v", "ao", "fo", "ln")),
    rotary={FULL: ("rope_theta",)},
    own_code=True,
    head="classifier",
)
