"""Gemma 3 that sees in both directions: EmbeddingGemma."""

from .family import FULL, LOCAL, OFF, Family

GEMMA3 = Family(
    name="gemma3",
    model_types=("gemma3_text",),
    names={
        "": "emb.word=embed_tokens fin.ln=norm",
        "layers.#.": "aln=input_layernorm oln=pre_feedforward_layernorm",
        "layers.#.post_": "aoln=attention_layernorm ooln=feedforward_layernorm",
        "layers.#.self_attn.": "q=q_proj k=k_proj v=v_proj ao=o_proj qln=q_norm kln=k_norm",
        "layers.#.mlp.": "fg=gate_proj fi=up_proj fo=down_proj",
    },
    required={
        "hidden_activation": ("gelu_pytorch_tanh", None),
        "attention_bias": OFF,
        "attn_logit_softcapping": OFF,
        "rope_scaling": OFF,
        "use_bidirectional_attention": (True,),
    },
    harmless="*sliding_window_pattern final_logit_softcapping",
    biased=frozenset(),
    rms=True,
    norm_adds_one=True,
    norm_before=True,
    scaled_words=True,
    activation="gelu_tanh",
    rotary={FULL: ("rope_theta",), LOCAL: ("rope_local_base_freq", "rope_theta")},
    window="sliding_window",
)
