"""Qwen3: Qwen3-Embedding."""

from .family import FULL, OFF, Family

QWEN3 = Family(
    name="qwen3",
    model_types=("qwen3",),
    names={
        "": "emb.word=embed_tokens fin.ln=norm",
        "layers.#.": "aln=input_layernorm oln=post_attention_layernorm",
        "layers.#.self_attn.": "q=q_proj k=k_proj v=v_proj ao=o_proj qln=q_norm kln=k_norm",
        "layers.#.mlp.": "fg=gate_proj fi=up_proj fo=down_proj",
    },
    required={"hidden_act": ("silu", None), "attention_bias": OFF, "use_sliding_window": OFF},
    harmless="sliding_window max_window_layers",
    biased=frozenset(),
    rms=True,
    norm_before=True,
    activation="silu",
    rotary={FULL: ("rope_theta",)},
    causal=True,
)
