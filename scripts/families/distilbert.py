"""DistilBERT: multi-qa-distilbert, encoders of inference-free sparse models."""

from .family import Family

DISTILBERT = Family(
    name="distilbert",
    model_types=("distilbert",),
    names={
        "embeddings.": "emb.word=word_embeddings emb.pos=position_embeddings emb.ln=LayerNorm",
        "transformer.layer.#.attention.": "q=q_lin k=k_lin v=v_lin ao=out_lin",
        "transformer.layer.#.": "aln=sa_layer_norm fi=ffn.lin1 fo=ffn.lin2 oln=output_layer_norm",
        "*vocab_": "mlm=transform mlm.ln=layer_norm words=projector",
    },
    required={"activation": ("gelu", None)},
    norm_epsilon=1e-12,
)
