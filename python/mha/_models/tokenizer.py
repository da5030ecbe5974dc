"""mha.Tokenizer: texts to ids and back, with offsets; incremental decoding; and training of tokenizers."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays.array import choose, integer, integers, view
from .._binding import abi
from .._binding.abi import EncodeOptions, Encoding, TokenizerTrained, TokenizerTrainOptions
from .._binding.context import context
from .._binding.exclusive import exclusive
from .._binding.library import Handle, call, create, lib, path_bytes, strings, struct, utf8
from .._binding.long_call import call_long

_KINDS = {"bpe": abi.TOKENIZER_BPE, "wordpiece": abi.TOKENIZER_WORDPIECE}


@dataclass
class Tokens:
    """A tokenized text. offsets: (begin, end) of each token, in bytes of the UTF-8 text; (0, 0) for special tokens. sequences: the text
    of a pair to which each token belongs, 0 or 1; -1 for special tokens. truncated: the number of tokens removed by truncation."""

    ids: list[int]
    type_ids: list[int]
    offsets: list[tuple[int, int]]
    sequences: list[int]
    truncated: int


def tokens_of(e: Encoding) -> Tokens:
    """Copies an encoding of the library. Its arrays may be NULL if only ids are known."""
    kinds = {"ids": np.int32, "type_ids": np.int32, "begin": np.int64, "end": np.int64, "sequence": np.int8}
    ids, types, begin, end, sequences = (view(address, kind, (e.count,)).tolist() if (address := getattr(e, n)) else [0] * e.count
                                         for n, kind in kinds.items())
    return Tokens(ids, types, list(zip(begin, end)), sequences, e.truncated)


class TextMethods(Handle):
    """The functions of a tokenizer, of mha.Tokenizer and mha.Model."""

    @property
    def _tokenizer(self) -> int | c_void_p:
        raise NotImplementedError

    def encode(self, text: str, pair: str | None = None, *, special: bool = True, max_tokens: int = 0,
               stored_limits: bool = False) -> Tokens:
        """Tokenizes a text, or a pair of texts, with offsets. max_tokens truncates; stored_limits applies the truncation and padding
        of tokenizer.json.

            >>> import mha
            >>> mha.Model().encode("the cat").offsets
            [(0, 1), (1, 3), (3, 7)]
        """
        data, second = utf8(text), None if pair is None else utf8(pair, "pair")
        options = struct(EncodeOptions, no_special=not special, max_tokens=integer(max_tokens, "max_tokens"),
                         stored_limits=bool(stored_limits))
        encoding = POINTER(Encoding)()
        call("mha_tokenizer_encode", self._tokenizer, data, len(data), second, len(second or b""), ctypes.byref(options),
             ctypes.byref(encoding))
        try:
            return tokens_of(encoding.contents)
        finally:
            lib.mha_encoding_free(encoding)

    def tokenize(self, text: str, special: bool = True, *, max_tokens: int = 0) -> list[int]:
        """Returns the ids of a text. max_tokens truncates; by default all ids are returned, even if they exceed the model's maximum."""
        return self.encode(text, special=special, max_tokens=max_tokens).ids

    def decode(self, ids: Any, skip_special: bool = False) -> str:
        """Decodes ids to a text by the decoder of tokenizer.json."""
        ids = integers(ids, "ids", np.int32)
        found, size, tokenizer = c_void_p(), c_size_t(), self._tokenizer
        call("mha_tokenizer_decode", tokenizer, ids.ctypes.data, len(ids), skip_special, ctypes.byref(found), ctypes.byref(size))
        try:
            return ctypes.string_at(found, size.value).decode()
        finally:
            lib.mha_tokenizer_text_free(tokenizer, found)

    def stream(self, skip_special: bool = False) -> TextStream:
        """Returns a stream that decodes ids one at a time.

            >>> import mha
            >>> model = mha.Model()
            >>> stream = model.stream()
            >>> "".join([stream.put(id) for id in model.tokenize("the cat")] + [stream.end()])
            'the cat'
        """
        return TextStream(self, skip_special)

    def token(self, id: int) -> str | None:
        """Returns the token of an id as written in tokenizer.json; None if the id is unknown."""
        found = lib.mha_tokenizer_token(self._tokenizer, integer(id, "id", -2**31, 2**31 - 1))
        return None if found is None else found.decode()

    def token_id(self, token: str) -> int | None:
        """Returns the id of a token as written in tokenizer.json; None if the token is unknown."""
        found = lib.mha_tokenizer_id(self._tokenizer, utf8(token, "token"))
        return None if found < 0 else int(found)

    def mask_id(self) -> int | None:
        """Returns the id of the mask token, [MASK] or <mask>; None if the tokenizer has none."""
        found = int(lib.mha_tokenizer_mask_id(self._tokenizer))
        return found if found >= 0 else None

    def is_special(self, id: int) -> bool:
        """Returns whether an id is a special token, such as [CLS]."""
        return bool(lib.mha_tokenizer_is_special(self._tokenizer, integer(id, "id", -2**31, 2**31 - 1)))

    def kinds(self, ids: Any) -> np.ndarray:
        """Returns the kinds of tokens as mha.heads_measure counts them, for mha.heads_of_maps: sums of 1 (special), 2 (separator) and
        4 (punctuation), uint8 [n]."""
        ids = integers(ids, "ids", np.int32)
        found = np.zeros(len(ids), np.uint8)
        call("mha_head_token_kinds", self._tokenizer, ids.ctypes.data, len(ids), found.ctypes.data)
        return found

    @property
    def vocabulary(self) -> int:
        """The largest id of the tokenizer plus one."""
        return int(lib.mha_tokenizer_size(self._tokenizer))


class TextStream(Handle):
    """Decodes ids that arrive one at a time; made by stream() of mha.Tokenizer and mha.Model."""

    def __init__(self, tokenizer: TextMethods, skip_special: bool) -> None:
        self._own(create("mha_text_stream_create", tokenizer._tokenizer, bool(skip_special)), "mha_text_stream_free", tokenizer._open())

    def _text(self, function: str, *arguments: Any) -> str:
        found, size = c_void_p(), c_size_t()
        call(function, self._open(), *arguments, ctypes.byref(found), ctypes.byref(size))
        return ctypes.string_at(found.value, size.value).decode() if found.value else ""

    @exclusive
    def put(self, id: int) -> str:
        """Appends the next id; returns the text that is final now, whole characters only, possibly ""."""
        return self._text("mha_text_stream_put", integer(id, "id", -2**31, 2**31 - 1))

    @exclusive
    def end(self) -> str:
        """Returns the text that was held back after the last id."""
        return self._text("mha_text_stream_end")


class Tokenizer(TextMethods):
    """The tokenizer of a folder with tokenizer.json.

        >>> import mha
        >>> trainer = mha.TokenizerTrainer("bpe", 300)
        >>> trainer.put("the cat sat on the mat")
        >>> trainer.end()
        >>> tokenizer = trainer.run()
        >>> tokenizer.decode(tokenizer.tokenize("the cat"))
        'the cat'

    Raises OSError if the file cannot be read, ValueError if it is malformed or unsupported.
    """

    def __init__(self, folder: Any) -> None:
        self._own(create("mha_tokenizer_open", context(), path_bytes(folder, "folder")), "mha_tokenizer_free")

    @classmethod
    def _of(cls, handle: c_void_p) -> Tokenizer:
        tokenizer = cls.__new__(cls)
        tokenizer._own(handle, "mha_tokenizer_free")
        return tokenizer

    @property
    def _tokenizer(self) -> int | c_void_p:
        return self._open()


@dataclass
class Trained:
    """The text that a tokenizer trainer has read, and its result so far."""

    bytes: int
    lines: int
    words: int
    distinct: int
    characters: int
    tokens: int
    merges: int
    rarest: int


class TokenizerTrainer(Handle):
    """Trains a tokenizer on text: "bpe" in the form of GPT-2, or "wordpiece" in the form of BERT (include/mha/text_train.h).

    special: special tokens after those of the type. min_frequency: minimum count of a merged pair. lowercase and alphabet (maximum
    number of characters) are for WordPiece. Texts follow with put() and end(); then call run() once, and save().
    """

    def __init__(self, kind: str, vocab_size: int, *, min_frequency: int = 0, special: Sequence[str] = (), lowercase: bool = False,
                 alphabet: int = 0) -> None:
        options = struct(TokenizerTrainOptions, type=choose("kind", kind, _KINDS), vocab_size=integer(vocab_size, "vocab_size"),
                         min_frequency=integer(min_frequency, "min_frequency"), special=strings(special, "special"),
                         special_count=len(special), lowercase=bool(lowercase), alphabet=integer(alphabet, "alphabet"))
        self._own(create("mha_tokenizer_trainer_create", context(), ctypes.byref(options)), "mha_tokenizer_trainer_free")

    @exclusive
    def put(self, text: str | bytes) -> None:
        """Appends a part of a text; bytes of UTF-8 may end anywhere. Each line is a separate text."""
        data = text if isinstance(text, bytes) else utf8(text)
        call_long("mha_tokenizer_trainer_put", self._open(), c_char_p(data), len(data))

    @exclusive
    def end(self) -> None:
        """Ends a text or file."""
        call_long("mha_tokenizer_trainer_end", self._open())

    @exclusive
    def run(self) -> Tokenizer:
        """Trains the tokenizer, after the last end(), and returns it. May be called once."""
        handle = c_void_p()
        call_long("mha_tokenizer_trainer_run", self._open(), ctypes.byref(handle))
        return Tokenizer._of(handle)

    @property
    def trained(self) -> Trained:
        """The size of the text read so far, and of the result."""
        found = TokenizerTrained()
        lib.mha_tokenizer_trainer_trained(self._open(), ctypes.byref(found))
        return Trained(*(getattr(found, name) for name, *_ in found._fields_))

    @exclusive
    def save(self, folder: Any, overwrite: bool = False) -> None:
        """Writes the folder that mha.Tokenizer, transformers and `tokenizers` read."""
        call("mha_tokenizer_trainer_save", self._open(), path_bytes(folder, "folder"), bool(overwrite))
