"""config.json of a published model: the family, the sizes, and what its description demands."""

from pathlib import Path

from default_package.choices import Pooling
from default_package.encoder import Attention, Config, Rotary
from default_package.errors import JsonFile
from families import FAMILIES, FULL, LOCAL, Family, Scorer

SIZES = {
    "hidden": ("hidden_size", "n_embd", "dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "ffn": ("intermediate_size", "n_inner", "hidden_dim"),
    "vocab_rows": ("vocab_size",),
    "positions": ("max_position_embeddings", "n_positions"),
    "type_rows": ("type_vocab_size",),
    "key_heads": ("num_key_value_heads",),
    "head_width": ("head_dim",),
}
"""Field of `Config` -> the keys that may say it: of BERT, GPT-2 and DistilBERT."""
NORM_EPSILON = ("layer_norm_eps", "layer_norm_epsilon", "norm_eps", "rms_norm_eps")
THETA = "rope_theta"
WAYS = ("default", "linear", "ntk")
"""In which queries and keys turn. `ntk` is that of GTE's own code, which transformers has not."""
QUANTIZED = "its weights are quantized: name the model that they were made from"
HARMLESS = """_name_or_path architectures tokenizer_class transformers_version torch_dtype dtype
*dropout* *_pdrop initializer_* *token_id id2label label2id problem_type finetuning_task use_cache
cache_implementation gradient_checkpointing output_attentions output_hidden_states output_past
pooler_* classifier_* directionality tie_* language summary_* matryoshka_dimensions use_flash_attn
fused_* use_xentropy use_memory_efficient_attention unpad_inputs reference_compile
repad_logits_with_grad deterministic_flash_attn sparse_pred* decoder_bias dense_seq_output
pad_vocab_size_multiple reorder_and_upcast_attn sinusoidal_pos_embds return_dict max_length
num_beams num_beam_groups num_return_sequences length_penalty repetition_penalty temperature top_k
top_p typical_p torchscript export_model_type sentence_transformers sbert_ce_*"""
"""Keys that say nothing of vectors or logits: training, kernels, heads for other tasks."""


class Configuration(JsonFile):
    """One file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        families = {kind: family for family in FAMILIES for kind in family.model_types}
        found = families.get(str(self.get("model_type")))
        self.demand(found is not None, "model_type", f"only {', '.join(families)} are known")
        self.family: Family = found
        key = "quantization_config"
        self.demand(not self.get(key), key, QUANTIZED)
        own = "the model brings code of its own, which is never run: choose a model without it"
        self.demand(not self.get("auto_map") or found.own_code, "auto_map", own)
        for key, allowed in found.required.items():
            known = " or ".join(repr(value) for value in allowed if value is not None)
            wanted = f"only {known or 'no value'} can be exported of {found.name} models"
            self.demand(self.get(key) in allowed, key, wanted)

    @property
    def is_classifier(self) -> bool:
        """Whether it has a head that judges texts."""
        named = self.of_kind("architectures", [])
        return any(str(name).endswith("ForSequenceClassification") for name in named)

    def sizes(self) -> Config:
        """Those of the network."""
        keys = {name: self._first(names) for name, names in SIZES.items()}
        if self.get("n_positions") is not None:
            # NomicBERT's other key says how long the texts were that it was trained with.
            keys["positions"] = "n_positions"
        # Some files have a number under several of its names.
        for names in (*SIZES.values(), NORM_EPSILON):
            first = self.get(self._first(names))
            self.known.update(key for key in names if key in self and self[key] == first)
        absent = {name for name in ("key_heads", "head_width") if self.get(keys[name]) is None}
        absent |= set() if self.family.has("emb.type") else {"type_rows"}
        # gte-base-en-v1.5 has no types of tokens.
        least = {"type_rows": 0}
        found = {n: self.whole(k, least.get(n, 1)) for n, k in keys.items() if n not in absent}
        hidden, heads = found["hidden"], found["heads"]
        share = f"{heads} heads cannot share it"
        self.demand("head_width" in found or hidden % heads == 0, keys["hidden"], share)
        self.demand(heads % found.get("key_heads", 1) == 0, keys["key_heads"], share)
        for name, usual in (("key_heads", heads), ("head_width", hidden // heads)):
            if found.get(name) == usual:
                del found[name]
        key = self._first(NORM_EPSILON)
        epsilon = self.family.norm_epsilon or self.get(key)
        is_small = isinstance(epsilon, float) and 0.0 < epsilon < 0.1
        self.demand(is_small, key, "it is not a small number")
        config = Config(**{"type_rows": 0} | found, layer_norm_epsilon=epsilon)
        # What the scores are divided by, squared.
        scalar, size = "query_pre_attn_scalar", config.head_size
        is_usual = self.get(scalar) in (None, size)
        self.demand(is_usual, scalar, f"only {size}, the width of a head, can be exported")
        return config

    def attentions(self, sizes: Config) -> tuple[Attention, ...]:
        """That of each layer."""
        family = self.family
        if not family.rotary:
            return ()
        kinds, every = self.get("layer_types"), family.full_every
        if every and (kinds is None or self.get(every) is not None):
            step = self.whole(every, 1)
            told = [LOCAL if layer % step else FULL for layer in range(sizes.layers)]
            kinds = told if kinds is None else kinds
            self.demand(kinds == told, "layer_types", f"{every} {step} says otherwise")
        if kinds is None and LOCAL not in family.rotary:
            kinds = [FULL] * sizes.layers
        is_known = isinstance(kinds, list) and set(kinds) <= set(family.rotary)
        wanted = f"{sizes.layers} are needed, each one of {', '.join(family.rotary)}"
        self.demand(is_known and len(kinds) == sizes.layers, "layer_types", wanted)
        found = {}
        for kind in set(kinds):
            window = self.whole(family.window, 2) // 2 if kind == LOCAL else None
            found[kind] = Attention(self._rotary(kind, sizes.head_size), window)
        return tuple(found[kind] for kind in kinds)

    def whole(self, key: str, least: int) -> int:
        """The number of a key."""
        value = self.get(key)
        is_whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
        self.demand(is_whole, key, f"a number from {least} is needed")
        return value

    def dimensions(self, width: int) -> list[int]:
        """Ascending; beginnings of a vector of `width` numbers that are vectors too."""
        key = "matryoshka_dimensions"
        found = self.get(key) or []
        is_list = isinstance(found, list) and all(type(d) is int and 0 < d <= width for d in found)
        self.demand(is_list, key, f"a list of numbers from 1 to {width} is needed")
        return sorted(set(found) - {width})

    def scorer(self) -> tuple[Scorer, Pooling]:
        """The head of a cross-encoder, and what the head is given."""
        self._demand_head("dense1", "cross-encoders", "architectures")
        found = self.family.scorer
        labels = self.get("id2label")
        one = "a cross-encoder with one label, the score, is needed"
        self.demand(isinstance(labels, dict) and len(labels) == 1, "id2label", one)
        for key, usual in (("classifier_activation", found.activation), ("classifier_bias", False)):
            self.demand(self.get(key) in (None, usual), key, f"only {usual} can be exported")
        pooling = self.get(found.pooling) or "cls"
        self.demand(pooling in ("cls", "mean"), found.pooling, "cls or mean is needed")
        return found, Pooling(pooling)

    def words_are_tied(self) -> bool:
        """Whether the last product of the head that guesses masked words is the word table."""
        self._demand_head("words", "SPLADE models", "model_type")
        return self.get("tie_word_embeddings") is not False

    def _demand_head(self, part: str, models: str, key: str) -> None:
        """Refuses a family whose description does not have it."""
        known = ", ".join(family.name for family in FAMILIES if family.has(part))
        why = f"{models} of {known} can be exported, and none of {self.family.name}"
        self.demand(self.family.has(part), key, why)

    def _rotary(self, kind: str, width: int) -> Rotary:
        """By any of the ways in which transformers has written it."""
        about, kinds = self.of_kind("rope_parameters", {}), self.family.rotary
        # What is said of no kind holds where there is only one.
        general = about if len(kinds) == 1 else {}
        wanted = f"what it says must be of one of {', '.join(kinds)}"
        self.demand(bool(general) or set(about) <= set(kinds), "rope_parameters", wanted)
        about = about.get(kind, general) | self.of_kind("rope_scaling", {})
        self.known.update(kinds[kind])
        way = about.get("rope_type", about.get("type", "default"))
        key = THETA if THETA in about else self._first(kinds[kind])
        # A key that is asked for counts as understood, so the file is asked for no other.
        theta = about[key] if key in about else self.get(key)
        factor = about.get("factor", 1.0) if way != "default" else 1.0
        for name, value in about.items():
            known = WAYS if name in ("rope_type", "type") else (None,)
            is_known = name in (THETA, "factor") or value in known
            self.demand(is_known, name, "it cannot be exported", value)
        for name, value in ((key, theta), ("factor", factor)):
            is_number = isinstance(value, int | float) and value >= 1
            self.demand(is_number, name, "a number from 1 is needed", value)
        if way == "ntk":
            theta, factor = theta * factor, factor ** (2 / width)
        return Rotary(float(theta), float(factor))

    def _first(self, keys: tuple[str, ...]) -> str:
        """The first key with a value, or that is there, or else the one that most models have."""
        there = [key for key in keys if key in self]
        return next((key for key in there if self[key] is not None), (*there, keys[0])[0])
