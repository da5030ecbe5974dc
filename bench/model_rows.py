"""The models of bench/models.py. The function of a row takes the dtype, the threads, a dict for skipped libraries and the options of the
command line; it returns a Work.
"""
import ctypes
import tempfile
from ctypes import c_void_p

import numpy as np
import torch
import transformers
from mha._binding.context import context
from mha._binding.abi import Error, ModelInput, ModelOptions, ModelOutput
from mha._binding.library import call, lib, struct

from llama import llama_cpp
import peers

DTYPES = {"f32": (torch.float32, 1, 4), "bf16": (torch.bfloat16, 2, 2), "int8": (torch.float32, 5, 1)}  # PyTorch's dtype, mha_dtype, bytes per weight
SHAPES = {"llama-0.5": 8, "llama-1.1": 22}  # layers


class Work:
    """The calls by name, and the work of one call: its operations or, if reads are the bottleneck, the bytes that it reads."""

    def __init__(self, calls, flops, read=0):
        self.calls, self.flops, self.read = calls, flops, read


def opened(peer, dtype, threads):
    """Opens the weights of a transformers model in mha."""
    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(folder)
        model, options = c_void_p(), struct(ModelOptions, no_map=1, no_tokenizer=1, dtype=DTYPES[dtype][1])
        call("mha_model_open", context(threads), folder.encode(), ctypes.byref(options), ctypes.byref(model))
    return model


def forward(model, output, ids, **given):
    """Returns a function that runs one forward pass and keeps the arrays of the pass alive; `ids` is None for images."""
    if ids is not None:
        ids = np.ascontiguousarray(ids, dtype=np.int32)
        given = {"ids": ids.ctypes.data, **given}
    arguments = (model, ctypes.byref(struct(ModelInput, **given)), ctypes.byref(output), ctypes.byref(Error()))

    def run(_alive=(ids, output)):
        if lib.mha_model_forward(*arguments):
            raise RuntimeError(arguments[3]._obj.message)

    return run


def in_torch(peer, dtype):
    """Returns the model in a dtype of DTYPES; int8 is PyTorch's dynamic quantization of linear layers."""
    if dtype == "int8":
        return torch.ao.quantization.quantize_dynamic(peer, {torch.nn.Linear}, torch.qint8)
    return peer.to(DTYPES[dtype][0])


def minilm():
    config = transformers.BertConfig(vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                                     intermediate_size=1536)
    torch.manual_seed(1)
    return transformers.BertModel(config, add_pooling_layer=False).eval()


def dense_flops(peer, tokens):
    return 2 * tokens * sum(p.numel() for n, p in peer.named_parameters() if p.dim() == 2 and "embeddings" not in n and "wte" not in n
                            and "wpe" not in n)


class OfIds(torch.nn.Module):
    """The model with tensors as its only input and output, as the ONNX exporter requires."""

    def __init__(self, peer):
        super().__init__()
        self.peer = peer

    def forward(self, ids):
        return self.peer(input_ids=ids).last_hidden_state


def onnx_bert(peer, ids, dtype, threads):
    """Runs the exported model; int8 is the dynamic quantization of ONNX Runtime."""
    import onnxruntime as ort
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/float.onnx"
        torch.onnx.export(OfIds(peer).eval(), (ids,), file, input_names=["ids"], output_names=["hidden"], dynamo=False,
                          opset_version=17)
        if dtype == "int8":
            from onnxruntime.quantization import QuantType, quantize_dynamic
            quantize_dynamic(file, f"{folder}/int8.onnx", weight_type=QuantType.QInt8)
            file = f"{folder}/int8.onnx"
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    name, feed = session.get_outputs()[0].name, {session.get_inputs()[0].name: ids.numpy()}
    return peers.Call(lambda: session.run([name], feed), lambda: session.run([name], feed)[0])


def sentences(dtype, threads, skipped, options):
    peer, ids = minilm(), torch.randint(0, 30522, (32, 128))
    model, hidden = opened(peer, dtype, threads), np.empty((32, 128, 384), np.float32)
    ours = forward(model, struct(ModelOutput, last_hidden=hidden.ctypes.data), ids.numpy(), batch=32, length=128)
    calls = {"mha": peers.Call(ours, lambda: hidden)}
    if dtype != "bf16":
        try:
            calls["onnxruntime"] = onnx_bert(peer, ids, dtype, threads)
        except Exception as why:  # pylint: disable=broad-except: exporters of some PyTorch versions fail
            skipped["onnxruntime"] = f"export or quantization failed: {str(why).splitlines()[0]}"
    if options.llama:
        other = llama_cpp.Model(options.llama, peer, dtype, threads, ids.numel(), sequences=32, embeds=True)
        calls["llama.cpp"] = other.call(ids.numpy(), hidden.shape)
    half = in_torch(peer, dtype)
    calls["torch"] = peers.Call(lambda: half(ids), lambda: half(ids).last_hidden_state.float().numpy())
    return Work(calls, dense_flops(peer, ids.numel()) + 6 * 4 * 32 * 128 * 128 * 384)


def mixed(dtype, threads, _skipped, _options):
    rng = np.random.default_rng(3)
    lengths = np.clip(np.round(np.exp(rng.normal(3.2, 0.6, 128))), 8, 128).astype(int)
    texts = [rng.integers(0, 30522, n) for n in lengths]
    peer, count = minilm(), int(lengths.sum())
    starts, hidden = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), np.empty((count, 384), np.float32)
    model = opened(peer, dtype, threads)
    runs = []
    for first in range(0, 128, 64):  # batches of about 2,000 tokens, as in mha_model_embed
        own = starts[first:first + 65] - starts[first]
        output = struct(ModelOutput, last_hidden=hidden.ctypes.data + 4 * 384 * int(starts[first]))
        run = forward(model, output, np.concatenate(texts[first:first + 64]), batch=64, starts=own.ctypes.data)
        runs.append((run, own))
    half = in_torch(peer, dtype)

    def padded(order):
        batches = []
        for n in range(0, 128, 32):
            members = order[n:n + 32]
            longest = max(lengths[m] for m in members)
            ids, mask = torch.zeros(32, longest, dtype=torch.long), torch.zeros(32, longest, dtype=torch.long)
            for row, m in enumerate(members):
                ids[row, :lengths[m]], mask[row, :lengths[m]] = torch.from_numpy(texts[m]), 1
            batches.append((members, ids, mask))

        def run():
            return [half(ids, attention_mask=mask).last_hidden_state for _, ids, mask in batches]

        def out():
            whole = np.empty_like(hidden)
            for (members, _, _), result in zip(batches, run()):
                for row, m in enumerate(members):
                    whole[starts[m]:starts[m + 1]] = result[row, :lengths[m]].float().numpy()
            return whole

        return peers.Call(run, out)

    calls = {"mha": peers.Call(lambda: [run() for run, _ in runs], lambda: hidden), "torch": padded(np.arange(128)),
             "torch sorted": padded(np.argsort(-lengths))}
    attention = 6 * 4 * 384 * int((lengths.astype(np.int64) ** 2).sum())
    return Work(calls, dense_flops(peer, count) + attention)


def gpt2(step):
    def rows(dtype, threads, _skipped, _options):
        torch.manual_seed(1)
        peer = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
        ids = torch.randint(0, 50257, (1, 513))
        model, logits = opened(peer, dtype, threads), np.empty((1, 50257), np.float32)
        output = struct(ModelOutput, last_logits=logits.ctypes.data)
        half = in_torch(peer, dtype)
        weights = 12 * 12 * 768 * 768 + 50257 * 768
        if step == "prefill":
            def whole():
                return half(ids[:, :512], logits_to_keep=1, use_cache=False).logits

            calls = {"mha": peers.Call(forward(model, output, ids[:, :512].numpy(), batch=1, length=512), lambda: logits),
                     "torch": peers.Call(whole, lambda: whole()[:, -1].float().numpy())}
            return Work(calls, 2 * 512 * 12 * 12 * 768 * 768 + 2 * 50257 * 768 + 12 * 2 * 512 * 512 * 768)
        cache = c_void_p()
        call("mha_model_cache_create", model, None, ctypes.byref(cache))
        forward(model, output, ids[:, :512].numpy(), batch=1, length=512, cache=cache)()
        one = forward(model, output, ids[:, 512:].numpy(), batch=1, length=1, cache=cache)
        past = half(ids[:, :512], use_cache=True).past_key_values

        def ours():
            one()
            lib.mha_model_cache_truncate(cache, 0, 512, None)

        def theirs():
            result = half(ids[:, 512:], past_key_values=past, use_cache=True).logits
            past.crop(-1)
            return result

        calls = {"mha": peers.Call(ours, lambda: logits), "torch": peers.Call(theirs, lambda: theirs()[:, -1].float().numpy())}
        size = DTYPES[dtype][2]
        return Work(calls, 2 * weights, size * (weights + 2 * 12 * 512 * 768))
    return rows


def llama(name, step):
    """The prompt of 512 tokens, or one token after it, in mha and llama.cpp."""
    def rows(dtype, threads, skipped, options):
        torch.manual_seed(1)
        peer = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=SHAPES[name], num_attention_heads=32,
            num_key_value_heads=4, max_position_embeddings=2048)).eval()
        ids = torch.randint(0, 32000, (1, 513)).numpy().astype(np.int32)
        model, logits, cache = opened(peer, dtype, threads), np.empty((1, 32000), np.float32), c_void_p()
        call("mha_model_cache_create", model, None, ctypes.byref(cache))
        output = struct(ModelOutput, last_logits=logits.ctypes.data)
        prompt, one = (forward(model, output, part, batch=1, length=part.size, cache=cache) for part in (ids[:, :512], ids[:, 512:]))
        first = 0 if step == "prompt" else 512

        def ours():
            lib.mha_model_cache_truncate(cache, 0, first, None)
            (one if first else prompt)()

        prompt()
        calls = {"mha": peers.Call(ours, lambda: logits)}
        if options.llama:
            other = llama_cpp.Model(options.llama, peer, dtype, threads, 1024)
            other.run(np.ascontiguousarray(ids[:, :512]))
            calls["llama.cpp"] = other.call(ids[:, first:] if first else ids[:, :512], logits.shape, first)
        else:
            skipped["llama.cpp"] = "(--llama is missing)"
        weights = sum(p.numel() for p in peer.parameters()) - 32000 * 2048
        return Work(calls, 2 * (512 - first or 1) * weights, DTYPES[dtype][2] * weights if first else 0)
    return rows


def images(dtype, threads, _skipped, _options):
    torch.manual_seed(1)
    peer, pixels = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000)).eval(), torch.randn(8, 3, 224, 224)
    model, logits, array = opened(peer, dtype, threads), np.empty((8, 1000), np.float32), pixels.numpy()
    output = struct(ModelOutput, logits=logits.ctypes.data)
    half, given = in_torch(peer, dtype), pixels.to(DTYPES[dtype][0])
    calls = {"mha": peers.Call(forward(model, output, None, batch=8, pixels=array.ctypes.data), lambda _alive=array: logits),
             "torch": peers.Call(lambda: half(given), lambda: half(given).logits.float().numpy())}
    return Work(calls, dense_flops(peer, 8 * 197) + 12 * 4 * 8 * 197 * 197 * 768)


def t5(step):
    """The encoder on 512 tokens, or one token of the decoder after 64 tokens, with the keys and values of the source in a cache."""
    def rows(dtype, threads, _skipped, _options):
        torch.manual_seed(1)
        peer = transformers.T5ForConditionalGeneration(transformers.T5Config(
            d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0)).eval()
        source, ids = torch.randint(2, 32000, (1, 512)), torch.randint(2, 32000, (1, 65))
        model, half, tokens = opened(peer, dtype, threads), in_torch(peer, dtype), source.numpy().astype(np.int32)
        matrices = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
        if step == "encode":
            encoder, hidden = c_void_p(lib.mha_model_encoder(model)), np.empty((1, 512, 768), np.float32)
            ours = forward(encoder, struct(ModelOutput, last_hidden=hidden.ctypes.data), tokens, batch=1, length=512)
            calls = {"mha": peers.Call(ours, lambda: hidden), "torch": peers.Call(
                lambda: half.encoder(source), lambda: half.encoder(source).last_hidden_state.float().numpy())}
            return Work(calls, 2 * 512 * matrices + 12 * 4 * 512 * 512 * 768)
        cache, logits = c_void_p(), np.empty((1, 32128), np.float32)
        call("mha_model_cache_create", model, None, ctypes.byref(cache))
        output, given = struct(ModelOutput, last_logits=logits.ctypes.data), struct(
            ModelInput, batch=1, length=512, ids=tokens.ctypes.data)
        forward(model, output, ids[:, :64].numpy(), batch=1, length=64, cache=cache, source=ctypes.pointer(given))()
        one = forward(model, output, ids[:, 64:].numpy(), batch=1, length=1, cache=cache)
        encoded = half.encoder(source)
        past = half(decoder_input_ids=ids[:, :64], encoder_outputs=encoded, use_cache=True).past_key_values

        def ours():
            one()
            lib.mha_model_cache_truncate(cache, 0, 64, None)

        def theirs():
            result = half(decoder_input_ids=ids[:, 64:], encoder_outputs=encoded, past_key_values=past, use_cache=True).logits
            past.self_attention_cache.crop(-1)
            return result

        calls = {"mha": peers.Call(ours, lambda: logits), "torch": peers.Call(theirs, lambda: theirs()[:, -1].float().numpy())}
        weights = matrices + 12 * 2 * 768 * 768 + 32128 * 768  # without the keys and values of the source, which are cached
        return Work(calls, 2 * weights, DTYPES[dtype][2] * (weights + 2 * 12 * 576 * 768))
    return rows


MODELS = {"minilm": sentences, "mixed": mixed, "prefill": gpt2("prefill"), "decode": gpt2("decode"), "vit": images,
          "t5-encode": t5("encode"), "t5-decode": t5("decode")} | {
    f"{name}-{step}": llama(name, step) for name in SHAPES for step in ("prompt", "decode")}
