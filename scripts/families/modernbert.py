"""ModernBERT: gte-modernbert-base and its re-ranker, granite-embedding r2."""

from .family import FULL, LOCAL, OFF, Family, Scorer

MODERNBERT = Family(
    name="modernbert",
    model_types=("modernbert",),
    names={
        "embeddings.": "emb.word=tok_embeddings emb.ln=norm",
        "layers.#.": "aln=attn_norm q+k+v=attn.Wqkv ao=attn.Wo oln=mlp_norm fg+fi=mlp.Wi fo=mlp.Wo",
        "": "fin.ln=final_norm",
        "*": "dense0=head.dense dense0.ln=head.norm dense1=classifier",
    },
    required={
        "hidden_activation": ("gelu", None),
        "position_embedding_type": ("absolute", None),
        "rope_scaling": (None,),
    }
    | dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias"), OFF),
    biased=frozenset(),
    rotary={FULL: ("global_rope_theta", "rope_theta"), LOCAL: ("local_rope_theta", "rope_theta")},
    window="local_attention",
    full_every="global_attn_every_n_layers",
    norm_before=True,
    first_norm=False,
    scorer=Scorer("gelu", biased=False, pooling="classifier_pooling"),
)
