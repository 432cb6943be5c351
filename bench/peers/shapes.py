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

    @property
    def decode(self):
        return self.q_len == 1


# Heads of `regard bench` (src/measure/cases.cc), so that rows of the same name are the same work.
_PREFILL_HEADS = {128: 16, 512: 8, 2048: 8, 8192: 1, 16384: 1}

DEFAULT_SHAPES = (
    [f"prefill/T{t}/d{d}/{m}" for t in (128, 512, 2048, 8192, 16384) for d in (64, 128) for m in ("full", "causal")]
    + ["decode/kv8192/d128", "decode/kv32768/d128"])


def parse(name):
    if match := re.fullmatch(r"prefill/T(\d+)/d(\d+)/(full|causal)", name):
        tokens, dim = int(match[1]), int(match[2])
        if tokens not in _PREFILL_HEADS:
            raise SystemExit(f"{name}: T must be one of {sorted(_PREFILL_HEADS)}")
        heads = _PREFILL_HEADS[tokens]
        return Shape(name, heads, heads, tokens, tokens, dim, match[3] == "causal")
    if match := re.fullmatch(r"decode/kv(\d+)/d128", name):
        return Shape(name, 32, 8, 1, int(match[1]), 128, False)
    raise SystemExit(f"{name}: not a shape; use names such as {DEFAULT_SHAPES[0]} or {DEFAULT_SHAPES[-1]}")


def inputs(shape):
    """q, k, v [1, heads, tokens, dim], f32, normal."""
    random = np.random.default_rng(1)
    make = lambda heads, tokens: random.standard_normal((1, heads, tokens, shape.dim), dtype=np.float32)
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
