"""Makes testdata/broken: what programs with one mistake each would give for layer 3 of testdata/minilm.

    python tools/make_broken_data.py testdata/minilm/all_minilm_l6_v2.safetensors testdata/broken
"""

import argparse
import pathlib

import numpy as np

import safetensors_file

LAYER = 3


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    tensors = safetensors_file.read(args.problem)
    q, k, v = (tensors[f"layers.{LAYER}.{name}"].astype(np.float64) for name in "qkv")
    scores = q @ k.swapaxes(-1, -2)
    scale = 1 / np.sqrt(q.shape[-1])
    right = softmax(scores * scale) @ v
    batch, heads, tokens, dim = right.shape
    causal = np.where(np.tril(np.ones((tokens, tokens), bool)), scores * scale, -np.inf)
    some_heads = right.copy()
    some_heads[:, 4:8] = (softmax(causal) @ v)[:, 4:8]
    results = {
        "scale_missing": {"context": softmax(scores) @ v},
        "heads_merged": {"context": right.reshape(batch, tokens, heads * dim)},
        "causal_in_heads_4_to_7": {"context": some_heads},
        "correct_in_bf16": {"context": (right.astype(np.float32).view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32)},
    }
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, result in results.items():
        arrays = {f"layers.{LAYER}.{key}": value.astype(np.float32) for key, value in result.items()}
        safetensors_file.write(args.folder / f"{name}.safetensors", arrays, {"fault": name})


if __name__ == "__main__":
    main()
