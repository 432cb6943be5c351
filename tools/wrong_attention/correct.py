"""Right results in other arithmetic: narrow types, other orders of summation, blocks, an approximate exp, edge cases."""

import numpy as np

from .masks import with_empty_rows
from .problem import Problem, repeat, visible
from .writing import to_bf16


def rounder(kind):
    return {"f16": lambda x: np.asarray(x, np.float32).astype(np.float16).astype(np.float32), "bf16": to_bf16,
            "tf32": lambda x: ((np.asarray(x, np.float32).view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32), "f32": lambda x: np.asarray(x, np.float32)}[kind]


FAMILIES = ["f32", "bf16", "f16", "tf32", "f16_everywhere", "blockwise", "reversed", "sequential", "approximate_exp", "f16_inputs", "huge_scores", "empty_rows", "one_token", "one_dim", "one_head", "weights_bf16"]


def correct(rng, family):
    want = {"mask": rng.random() < 0.3, "lens": rng.random() < 0.2, "window": rng.random() < 0.2, "cap": rng.random() < 0.1, "sinks": rng.random() < 0.15}
    if family == "one_token":
        want.update(Tq=1, Tk=int(rng.choice([1, 1, 2, 9])), lens=False, window=False)
    if family == "one_dim":
        want.update(d=1, dv=1)
    if family == "one_head":
        want.update(G=1, group=1)
    if family == "empty_rows":
        want.update(mask=True)
    p = Problem(rng, **want)
    if family == "empty_rows":
        with_empty_rows(p)
    if family == "f16_inputs":
        p.q, p.k, p.v = (x.astype(np.float16) for x in (p.q, p.k, p.v))
    if family == "huge_scores":
        p.q *= 1000 / max(1e-3, float(np.abs(np.einsum("bhid,bhjd->bhij", p.q, repeat(p.k, p))).max() * p.scale))
    kind = family if family in ("bf16", "f16", "tf32") else str(rng.choice(["f32", "bf16", "f16"])) if family in ("huge_scores", "empty_rows", "one_token", "one_dim", "one_head") else "f32"
    r = rounder("f16" if family == "f16_everywhere" else kind)
    q, k, v = r(p.q), r(repeat(p.k, p)), r(repeat(p.v, p))
    order = np.arange(p.d)[::-1] if family == "reversed" else np.arange(p.d)
    if family in ("sequential", "f16_everywhere"):
        s = np.zeros((p.B, p.H, p.Tq, p.Tk), np.float32)
        for n in range(p.d):
            s = r(s + r(q[..., :, None, n] * k[..., None, :, n]))
    else:
        s = (q[..., order] @ k[..., order].swapaxes(-1, -2)).astype(np.float32)
    s = r(s * np.float32(p.scale))
    if p.cap:
        s = r(np.float32(p.cap) * np.tanh(s / np.float32(p.cap)))
    see = visible(p)
    m = np.where(see, s, np.float32(-np.inf))
    sink = None if p.sinks is None else p.sinks[None, :, None, None]
    top = m.max(-1, keepdims=True) if sink is None else np.maximum(m.max(-1, keepdims=True), sink)
    top = np.where(np.isfinite(top), top, 0).astype(np.float32)
    x = r(m - top)
    if family == "approximate_exp":
        whole = np.floor(np.maximum(x, -80) * np.float32(1.442695))
        rest = (np.maximum(x, -80) - whole * np.float32(0.6931472)).astype(np.float32)
        e = np.where(m == -np.inf, 0, (1 + rest * (1 + rest * (np.float32(0.5) + rest * (np.float32(0.16667) + rest * np.float32(0.0424))))) * 2.0**whole).astype(np.float32)
    else:
        e = r(np.exp(x))
    if family in ("sequential", "f16_everywhere"):
        total = np.zeros(e.shape[:-1] + (1,), np.float32)
        for n in range(p.Tk):
            total = r(total + e[..., n : n + 1])
    elif family == "blockwise":
        total = sum(e[..., n : n + 4].sum(-1, keepdims=True) for n in range(0, p.Tk, 4))
    else:
        total = e[..., ::-1].sum(-1, keepdims=True, dtype=np.float32)
    if sink is not None:
        total = r(total + np.exp(sink - top))
    w = r(np.divide(e, total, out=np.zeros_like(e), where=total > 0))
    o = r((to_bf16(w) if family == "weights_bf16" else w) @ v)
    return p, {"weights": w.astype(np.float64), "context": o.astype(np.float64)}, kind
