"""NomicBERT: nomic-embed-text v1 and v1.5."""

from .family import FULL, OFF, Family

NOMIC_OFF = """causal prenorm parallel_block qkv_proj_bias mlp_fc1_bias mlp_fc2_bias use_rms_norm
scale_attn_by_inverse_layer_idx rotary_emb_interleaved rotary_emb_scale_base rotary_scaling_factor
num_experts moe_every_n_layers"""
"""The last two are of version 2; `rotary_scaling_factor` turns longer texts in another way."""
NOMIC_BERT = Family(
    name="nomic-bert",
    model_types=("nomic_bert",),
    names={
        "embeddings.": "emb.word=word_embeddings emb.type=token_type_embeddings",
        "": "emb.ln=emb_ln",
        "encoder.layers.#.": "q+k+v=attn.Wqkv ao=attn.out_proj aln=norm1 oln=norm2",
        "encoder.layers.#.mlp.": "fi=fc11 fg=fc12 fo=fc2",
    },
    required={
        "hidden_act": ("silu", None),
        "activation_function": ("swiglu", None),
        "rotary_emb_fraction": (1.0, None),
        "scale_attn_weights": (True, None),
    }
    | dict.fromkeys(NOMIC_OFF.split(), OFF),
    harmless="max_trained_positions moe_* expert_*",
    biased=frozenset(("ln",)),
    activation="silu",
    rotary={FULL: ("rope_theta", "rotary_emb_base")},
    own_code=True,
)
