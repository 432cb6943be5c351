"""Faults of projections: F96-F98."""

import numpy as np

from .problem import attend
from .registry import fault


def projected(name, wrong, **want):
    """q, k, v from inputs; `wrong` says how they were projected instead."""

    def make(p):
        size = p.H * p.d
        normal = lambda *shape: p.rng.normal(size=shape) / np.sqrt(size)
        x = p.rng.normal(size=(p.B, p.Tk, size)).astype(np.float32)
        w = {n: normal(size, size).astype(np.float32) for n in ("query", "key", "value", "out")}
        b = {n: normal(size).astype(np.float32) for n in w}
        heads = lambda y: y.reshape(p.B, p.Tk, p.H, p.d).swapaxes(1, 2)
        right = {n: heads(x.astype(float) @ w[n].T + b[n]) for n in ("query", "key", "value")}
        bad = {n: heads(wrong(x.astype(float), w[n].astype(float), b[n])) for n in right}
        p.extra = {"inputs": x, "num_heads": np.array(p.H), **{f"w_{n}": a for n, a in w.items()}, **{f"b_{n}": a for n, a in b.items()}}
        return attend(p, q=bad["query"], k=bad["key"], v=bad["value"]) if right else None

    fault(name, group=1, G=3, d=4, dv=4, Tk=13, Tq=13, align="top", inputs_only=True, **want)(make)


projected("F96", lambda x, w, b: x @ w + b)
projected("F97", lambda x, w, b: x @ w.T)


@fault("F98", group=1, G=3, d=4, dv=4, Tk=13, Tq=13, align="top", inputs_only=True, observe="projected")
def out_left_out(p):
    size = p.H * p.d
    x = p.rng.normal(size=(p.B, p.Tk, size)).astype(np.float32)
    w = {n: (p.rng.normal(size=(size, size)) / np.sqrt(size)).astype(np.float32) for n in ("query", "key", "value", "out")}
    heads = lambda y: y.reshape(p.B, p.Tk, p.H, p.d).swapaxes(1, 2)
    q, k, v = (heads(x.astype(float) @ w[n].T) for n in ("query", "key", "value"))
    p.extra = {"inputs": x, "num_heads": np.array(p.H), **{f"w_{n}": a for n, a in w.items()}}
    r = attend(p, q=q, k=k, v=v)
    r["projected"] = r["context"].swapaxes(1, 2).reshape(p.B, p.Tk, size)
    return r
