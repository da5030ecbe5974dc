"""llama.cpp as a peer of bench/models.py: writes a model of transformers as a GGUF file, and runs the file through the library that
bench/llama/build.sh builds. Requires the package gguf.
"""
import ctypes
import os
import re
import tempfile
from ctypes import c_char_p, c_int, c_void_p

import gguf
import numpy as np

import peers

TYPES = {"f32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16, "int8": gguf.GGMLQuantizationType.Q8_0}


def interleaved(weight, heads):
    """Orders the rows of a query or key projection as llama.cpp rotates them: neighboring rows instead of both halves of a head."""
    return weight.reshape(heads, 2, -1, weight.shape[-1]).swapaxes(1, 2).reshape(weight.shape)


def describe(writer, config):
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    if config.model_type == "llama":
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
        writer.add_rope_freq_base(10000.0)
    else:
        writer.add_causal_attention(False)
        writer.add_layer_norm_eps(config.layer_norm_eps)
        writer.add_token_type_count(config.type_vocab_size)


def write(model, dtype, path):
    """Writes a llama or BERT model; vectors stay in f32, as in files of llama.cpp."""
    config, bert = model.config, model.config.model_type == "bert"
    writer = gguf.GGUFWriter(path, "bert" if bert else "llama")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT if bert else gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    describe(writer, config)
    for name, tensor in model.state_dict().items():
        data = tensor.float().numpy()
        heads = re.search(r"self_attn\.([qk])_proj\.weight", name)
        if heads:
            data = interleaved(data, config.num_attention_heads if heads[1] == "q" else config.num_key_value_heads)
        to = names.get_name(name, try_suffixes=(".weight", ".bias"))
        kind = TYPES[dtype] if data.ndim == 2 and "position" not in name and "token_type" not in name else TYPES["f32"]
        writer.add_tensor(to, gguf.quants.quantize(np.ascontiguousarray(data), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Model:
    """A model of transformers in llama.cpp."""

    def __init__(self, library, model, dtype, threads, tokens, sequences=1, embeds=False):
        self.lib, self.embeds = ctypes.CDLL(library), embeds
        for name, result, arguments in (("open", c_void_p, (c_char_p, c_int, c_int, c_int, c_int)), ("truncate", None, (c_void_p, c_int)),
                                        ("run", c_int, (c_void_p, c_void_p, c_int, c_int, c_int, c_int)),
                                        ("result", c_void_p, (c_void_p, c_int)), ("close", None, (c_void_p,))):
            function = getattr(self.lib, f"llama_peer_{name}")
            function.restype, function.argtypes = result, arguments
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.gguf")
            write(model, dtype, path)
            self.peer = self.lib.llama_peer_open(path.encode(), threads, tokens, sequences, embeds)
        if not self.peer:
            raise RuntimeError("llama.cpp cannot open the model")

    def __del__(self):
        self.lib.llama_peer_close(self.peer)

    def run(self, ids, first=0):
        """Runs ids [sequences, length] from position `first` on."""
        if self.lib.llama_peer_run(self.peer, ids.ctypes.data, *ids.shape, first, self.embeds):
            raise RuntimeError("llama.cpp cannot run the model")

    def truncate(self, tokens):
        self.lib.llama_peer_truncate(self.peer, tokens)

    def result(self, *shape):
        pointer = ctypes.cast(self.lib.llama_peer_result(self.peer, self.embeds), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(pointer, shape).copy()

    def call(self, ids, shape, first=0):
        """Returns a prepared call that runs ids [sequences, length] after the first `first` positions, which remain in the cache. Embeddings
        are computed in batches of about 512 tokens, the default of llama.cpp, which computes all pairs of tokens of a batch.
        """
        ids = np.ascontiguousarray(ids, np.int32)
        count = max(1, 512 // ids.shape[1]) if self.embeds else len(ids)
        parts = [ids[n:n + count] for n in range(0, len(ids), count)]

        def run(results=None):
            for part in parts:
                self.truncate(first)
                self.run(part, first)
                if results is not None:
                    results.append(self.result(len(part), *shape[1:]))

        def out():
            results = []
            run(results)
            return np.concatenate(results)

        return peers.Call(run, out)
