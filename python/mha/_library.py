"""The shared library: its structs and functions as ctypes, its errors as exceptions.

The structs repeat include/mha/*.h field by field; tests/python/test_abi.py compares every offset with the compiler's.
"""
import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

from . import _places


class View(ctypes.Structure):
    """mha_view and mha_cview."""
    _fields_ = [("data", c_void_p), ("stride", c_int64 * 4)]


class Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("message", ctypes.c_char * 1024)]


class Window(ctypes.Structure):
    _fields_ = [("on", c_int), ("left", c_int64), ("right", c_int64)]


class Allocator(ctypes.Structure):
    _fields_ = [("alloc", c_void_p), ("free", c_void_p), ("user", c_void_p)]


OnLog = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class CtxOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("threads", c_int), ("isa", c_char_p), ("allocator", Allocator), ("log", OnLog),
                ("log_user", c_void_p), ("progress", c_void_p), ("progress_user", c_void_p), ("parallel_for", c_void_p),
                ("parallel_for_user", c_void_p), ("between_tiles", c_void_p), ("between_tiles_user", c_void_p)]


class AttnDesc(ctypes.Structure):
    _fields_ = [("size", c_size_t)] + [(n, c_int64) for n in (
        "batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "v_head_dim")] + [
        ("dtype", c_int), ("kv_dtype", c_int), ("bias_dtype", c_int), ("scale", c_double), ("softcap", c_double),
        ("causal", c_int), ("align", c_int), ("window", Window)] + [(n, c_int64) for n in (
            "max_q_len", "max_kv_len", "keep_keys", "block_q", "block_k", "page_size", "pages", "listed_heads", "map_heads",
            "map_rows", "top_keys")] + [("dropout", c_double),
        ("scores", c_int), ("inputs", c_uint32), ("outputs", c_uint32), ("shard", c_int64 * 4)]


class AttnArgs(ctypes.Structure):
    _fields_ = [("size", c_size_t)] + [(n, View) for n in ("q", "k", "v", "out", "keep", "bias")] + [
        (n, c_void_p) for n in ("q_lens", "kv_lens", "offsets", "cu_seqlens_q", "cu_seqlens_k", "prefix_lens")] + [
        (n, View) for n in ("block_keep", "block_table", "slopes", "sinks", "gates")] + [
        ("head_list", c_void_p), ("dropout_keep", View), ("dropout_seed", c_uint64), ("map_heads", c_void_p), ("map_rows", View),
        ("lse", View), ("probs", View), ("scores", View), ("stats", c_void_p),
        ("on_rows", c_void_p * 2), ("partial", View)]


class AttnStats(ctypes.Structure):
    _fields_ = [("size", c_size_t)] + [(n, View) for n in (
        "row_entropy", "row_max", "row_argmax", "row_distance", "received", "top_prob", "top_key")]


class AttnGrads(ctypes.Structure):
    _fields_ = [("size", c_size_t)] + [(n, View) for n in (
        "dout", "out", "lse", "dlse", "dq", "dk", "dv", "dbias", "dslopes", "dsinks", "dgates", "row_taylor")]


class ModelAttention(ctypes.Structure):
    _fields_ = [("window", c_int64), ("rotary", c_int), ("qk_norm", c_int), ("alibi", c_int), ("scale", c_double),
                ("softcap", c_double), ("choice", c_int), ("selection", c_int), ("heads_per_text", c_int64),
                ("head_options", POINTER(c_int64)), ("head_option_count", c_int64)]


class ModelInfo(ctypes.Structure):
    _fields_ = [("family", c_char_p)] + [(n, c_int64) for n in (
        "layers", "heads", "kv_heads", "head_dim", "hidden", "intermediate", "vocab", "max_positions", "type_vocab",
        "parameters", "bytes", "kv_bytes_per_token")] + [("heads_per_layer", POINTER(c_int64)), ("causal", c_int),
                                                         ("dtype", c_int), ("logits", c_int),
        ("key_heads_per_layer", POINTER(c_int64)), ("value_heads_per_layer", POINTER(c_int64)),
        ("feed_forward_per_layer", POINTER(c_int64)), ("attention_per_layer", POINTER(ModelAttention)),
        ("original_heads", c_int64)]


class ModelOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("no_map", c_int), ("no_weights", c_int), ("no_tokenizer", c_int), ("dtype", c_int),
                ("tensors", c_void_p), ("tensor_count", c_int64)]


class ModelInput(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("batch", c_int64), ("length", c_int64), ("ids", c_void_p), ("type_ids", c_void_p),
                ("mask", c_void_p), ("positions", c_void_p), ("cache", c_void_p), ("sequence", c_int64), ("starts", c_void_p),
                ("gates", c_void_p), ("fills", c_void_p), ("first_layer", c_int64), ("hidden", c_void_p),
                ("context", c_void_p)]


OnHidden = ctypes.CFUNCTYPE(c_int, c_void_p, c_int64, POINTER(ctypes.c_float))
OnAttention = ctypes.CFUNCTYPE(c_int, c_void_p, c_int64, c_int64, POINTER(ctypes.c_float))


class ModelHead(ctypes.Structure):
    _fields_ = [("layer", c_int32), ("head", c_int32)]


class ModelStats(ctypes.Structure):
    _fields_ = [("layer", c_int64), ("heads", c_int64), ("keys", c_int64)] + [
        (n, POINTER(ctypes.c_float)) for n in ("row_entropy", "row_max", "row_distance")] + [
        ("row_argmax", POINTER(c_int64)), ("received", POINTER(ctypes.c_float)), ("top_prob", POINTER(ctypes.c_float)),
        ("top_key", POINTER(c_int64))]


OnStats = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(ModelStats))


class ModelActivations(ctypes.Structure):
    _fields_ = [(n, c_int64) for n in ("layer", "rows", "heads", "kv_heads", "head_dim")] + [
        (n, POINTER(ctypes.c_float)) for n in ("input", "q", "k", "v")] + [("stride", c_int64)] + [
        (n, POINTER(ctypes.c_float)) for n in ("context", "out")]


OnActivations = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(ModelActivations))


class ModelOutput(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("last_hidden", c_void_p), ("pooled", c_void_p), ("logits", c_void_p),
                ("last_logits", c_void_p), ("on_hidden", OnHidden), ("on_attention", OnAttention), ("user", c_void_p),
                ("map_heads", c_void_p), ("map_count", c_int64), ("map_rows", c_void_p), ("map_row_count", c_int64),
                ("on_stats", OnStats), ("top_keys", c_int64), ("on_activations", OnActivations),
                ("on_rows", c_void_p), ("kept", c_void_p)]


class EncodeOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("no_special", c_int), ("max_tokens", c_int64), ("stored_limits", c_int)]


class Encoding(ctypes.Structure):
    _fields_ = [("count", c_int64), ("ids", POINTER(c_int32)), ("type_ids", POINTER(c_int32)), ("begin", POINTER(c_int64)),
                ("end", POINTER(c_int64)), ("sequence", POINTER(ctypes.c_int8)), ("truncated", c_int64)]


class Prompt(ctypes.Structure):
    _fields_ = [("ids", c_void_p), ("count", c_int64)]


class Sampling(ctypes.Structure):
    _fields_ = [("temperature", c_double), ("top_k", c_int64), ("top_p", c_double), ("min_p", c_double),
                ("repetition_penalty", c_double), ("no_repeat_ngram", c_int64), ("seed", c_uint64)]


OnPrompt = ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_int64)
OnToken = ctypes.CFUNCTYPE(c_int, c_void_p, c_int64, c_int32)
OnText = ctypes.CFUNCTYPE(c_int, c_void_p, c_int64, c_void_p, c_size_t)
OnEnd = ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_int)


class GenerateOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("max_new", c_int64), ("min_new", c_int64), ("sampling", Sampling), ("eos", c_void_p),
                ("eos_count", c_int64), ("stop", POINTER(c_char_p)), ("stop_count", c_int64), ("no_cache", c_int),
                ("at_once", c_int64), ("cache_dtype", c_int), ("lookup", c_int64), ("on_prompt", OnPrompt), ("on_token", OnToken),
                ("on_text", OnText), ("on_end", OnEnd), ("user", c_void_p)]


class EmbedOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("pool", c_int), ("no_normalize", c_int)]


class NamedTensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("rank", c_int), ("shape", c_int64 * 4), ("data", c_void_p)]


class Distill(ctypes.Structure):
    _fields_ = [(n, c_double) for n in ("labels", "logits", "hidden", "text", "temperature")] + [("pool", c_int)]


class LossArgs(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("labels", c_void_p), ("scale", c_double), ("dgates", c_void_p),
                ("dembeddings", c_void_p), ("on_context", c_void_p), ("user", c_void_p), ("taylor", c_int),
                ("loss_only", c_int), ("teacher", c_void_p), ("distill", Distill)]


class SaveOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("dtype", c_int), ("overwrite", c_int), ("tensors", POINTER(NamedTensor)),
                ("count", c_int64), ("config_json", c_char_p)]


# name -> (result, arguments); every function that returns a status is called through `call`.
FUNCTIONS = {
    "mha_version": (c_char_p, []),
    "mha_ctx_create": (c_int, [POINTER(CtxOptions), POINTER(c_void_p), POINTER(Error)]),
    "mha_ctx_free": (None, [c_void_p]),
    "mha_ctx_isa": (c_char_p, [c_void_p]),
    "mha_ctx_threads": (c_int, [c_void_p]),
    "mha_attention": (c_int, [c_void_p, POINTER(AttnDesc), POINTER(AttnArgs), POINTER(Error)]),
    "mha_attention_backward": (c_int, [c_void_p, POINTER(AttnDesc), POINTER(AttnArgs), POINTER(AttnGrads),
                                       POINTER(Error)]),
    "mha_attn_plan_create": (c_int, [c_void_p, POINTER(AttnDesc), POINTER(c_void_p), POINTER(Error)]),
    "mha_attn_plan_free": (None, [c_void_p]),
    "mha_attn_plan_describe": (c_size_t, [c_void_p, c_int, c_char_p, c_size_t]),
    "mha_model_open": (c_int, [c_void_p, c_char_p, c_void_p, POINTER(c_void_p), POINTER(Error)]),
    "mha_model_free": (None, [c_void_p]),
    "mha_model_describe": (POINTER(ModelInfo), [c_void_p]),
    "mha_model_config_json": (c_char_p, [c_void_p]),
    "mha_model_tokenizer": (c_void_p, [c_void_p]),
    "mha_model_forward": (c_int, [c_void_p, POINTER(ModelInput), POINTER(ModelOutput), POINTER(Error)]),
    "mha_model_embed": (c_int, [c_void_p, POINTER(c_char_p), c_int64, POINTER(EmbedOptions), c_void_p, POINTER(Error)]),
    "mha_model_generate": (c_int, [c_void_p, POINTER(Prompt), c_int64, POINTER(GenerateOptions), c_void_p, c_void_p,
                                   POINTER(Error)]),
    "mha_model_score": (c_int, [c_void_p, c_void_p, c_int64, c_void_p, POINTER(Error)]),
    "mha_model_grads_create": (c_int, [c_void_p, c_void_p, POINTER(c_void_p), POINTER(Error)]),
    "mha_model_grads_free": (None, [c_void_p]),
    "mha_model_grads_list": (POINTER(NamedTensor), [c_void_p, POINTER(c_int64)]),
    "mha_model_grads_loss": (c_int, [c_void_p, POINTER(ModelInput), POINTER(LossArgs), POINTER(c_double), c_void_p,
                                     POINTER(Error)]),
    "mha_model_save": (c_int, [c_void_p, c_char_p, POINTER(SaveOptions), POINTER(Error)]),
    "mha_tokenizer_encode": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, POINTER(EncodeOptions),
                                     POINTER(POINTER(Encoding)), POINTER(Error)]),
    "mha_encoding_free": (None, [POINTER(Encoding)]),
    "mha_tokenizer_decode": (c_int, [c_void_p, POINTER(c_int32), c_int64, c_int, POINTER(c_void_p), POINTER(c_size_t),
                                     POINTER(Error)]),
    "mha_tokenizer_text_free": (None, [c_void_p, c_void_p]),
}


def _load():
    library = ctypes.CDLL(_places.library())  # CDLL: the interpreter lock is released during each call
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


lib = _load()
version = lib.mha_version().decode()

_EXCEPTIONS = {2: MemoryError, 4: OSError, 6: KeyboardInterrupt}  # anything else is the caller's input: ValueError


def call(name, *arguments):
    """Calls a function that returns a status; its failure is an exception with the library's sentence."""
    error = Error()
    status = getattr(lib, name)(*arguments, ctypes.byref(error))
    if status:
        raise _EXCEPTIONS.get(status, ValueError)(error.message.decode("utf-8", "replace"))


def struct(kind, **fields):
    """A struct with `size` set, as every struct that is passed in wants it."""
    return kind(size=ctypes.sizeof(kind), **fields)
