"""The shapes that all sides compute, by the names of `regard bench`, and their inputs."""

import re
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Shape:
    name: str
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    dim: int
    causal: bool
    backward: bool = False
    dtype: str = "f32"

    @property
    def decode(self):
        return self.q_len == 1


# Heads of `regard bench` (src/measure/cases.cc), so that rows of the same name are the same work.
_PREFILL_HEADS = {128: 16, 512: 8, 2048: 8, 8192: 1, 16384: 1}

DEFAULT_SHAPES = (
    [f"prefill/T{t}/d{d}/{m}" for t in (128, 512, 2048, 8192, 16384) for d in (64, 128) for m in ("full", "causal")]
    + [f"prefill/T2048/d{d}/{m}/bf16" for d in (64, 128) for m in ("full", "causal")]
    + ["decode/kv8192/d128", "decode/kv32768/d128", "decode/kv8192/d128/bf16", "decode/kv32768/d128/bf16"]
    + [f"backward/T{t}/d{d}/{m}" for t in (512, 2048, 8192) for d in (64, 128) for m in ("full", "causal")])


def parse(name):
    if match := re.fullmatch(r"(prefill|backward)/T(\d+)/d(\d+)/(full|causal)(?:/(bf16))?", name):
        tokens, dim = int(match[2]), int(match[3])
        if tokens not in _PREFILL_HEADS:
            raise SystemExit(f"{name}: T must be one of {sorted(_PREFILL_HEADS)}")
        heads = _PREFILL_HEADS[tokens]
        return Shape(name, heads, heads, tokens, tokens, dim, match[4] == "causal", match[1] == "backward",
                     match[5] or "f32")
    if match := re.fullmatch(r"decode/kv(\d+)/d128(?:/(bf16))?", name):
        return Shape(name, 32, 8, 1, int(match[1]), 128, False, dtype=match[2] or "f32")
    raise SystemExit(f"{name}: not a shape; use names such as {DEFAULT_SHAPES[0]} or {DEFAULT_SHAPES[-1]}")


def inputs(shape):
    """q, k, v [1, heads, tokens, dim], normal, as f32 that hold numbers of the shape's type."""
    random = np.random.default_rng(1)

    def make(heads, tokens):
        x = random.standard_normal((1, heads, tokens, shape.dim), dtype=np.float32)
        # A bf16 is the upper half of an f32.
        return x if shape.dtype == "f32" else (x.view(np.uint32) & 0xFFFF0000).view(np.float32)

    return make(shape.heads, shape.q_len), make(shape.kv_heads, shape.kv_len), make(shape.kv_heads, shape.kv_len)


def largest_error(shape, q, k, v, context):
    """Of some rows of context [heads, tokens, dim] against float64."""
    worst = 0.0
    for head in {0, shape.heads // 2, shape.heads - 1}:
        keys, values = k[0, head * shape.kv_heads // shape.heads], v[0, head * shape.kv_heads // shape.heads]
        for row in {0, 1 % shape.q_len, shape.q_len // 2, shape.q_len - 1}:
            visible = row + 1 if shape.causal else shape.kv_len
            scores = keys[:visible].astype(np.float64) @ q[0, head, row].astype(np.float64) / np.sqrt(shape.dim)
            weights = np.exp(scores - scores.max())
            expected = weights @ values[:visible].astype(np.float64) / weights.sum()
            worst = max(worst, np.abs(expected - context[head, row]).max())
    return worst


def context_gradient(shape):
    """d_context [1, heads, tokens, dim], f32, normal."""
    return np.random.default_rng(2).standard_normal((1, shape.heads, shape.q_len, shape.dim), dtype=np.float32)


def largest_gradient_error(shape, q, k, v, d_context, d_q, d_k, d_v):
    """Of the gradients [heads, tokens, dim] of one head against float64, as a part of the largest number there."""
    head = shape.heads - 1
    q, k, v, d_context = (x[0, head].astype(np.float64) for x in (q, k, v, d_context))
    scores = q @ k.T / np.sqrt(shape.dim)
    if shape.causal:
        scores[np.triu_indices(shape.q_len, 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    d_weights = d_context @ v.T
    d_scores = weights * (d_weights - (weights * d_weights).sum(axis=1, keepdims=True)) / np.sqrt(shape.dim)
    pairs = ((d_scores @ k, d_q), (d_scores.T @ q, d_k), (weights.T @ d_context, d_v))
    return max(np.abs(expected - found[head]).max() / np.abs(expected).max() for expected, found in pairs)
