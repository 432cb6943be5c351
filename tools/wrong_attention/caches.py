"""Faults of caches, merging and the value product: F80-F87, F95."""

import numpy as np

from .problem import attend, repeat, softmax
from .registry import fault


@fault("F80", lens=True)
def nan_through(p):
    for b in range(p.B):
        p.v[b, :, p.lens[b] :] = np.nan
    return attend(p)  # 0·NaN


@fault("F81")
def swallowed(p):
    p.v[:, :, 0, 0] = np.nan
    r = attend(p)
    r["context"] = np.nan_to_num(r["context"])
    return r


@fault("F82", causal=False)
def lse_base(p):
    split = int(p.rng.integers(2, p.Tk - 1))

    def norm(m, sink, see):
        parts = [m[..., :split], m[..., split:]]
        lse = [np.log(np.exp(x).sum(-1)) / np.log(2) for x in parts]
        total = np.exp(lse[0]) + np.exp(lse[1])
        return np.concatenate([softmax(x) * (np.exp(l) / total)[..., None] for x, l in zip(parts, lse)], -1)

    return attend(p, norm=norm)


@fault("F83", causal=False)
def twice(p):
    split = int(p.rng.integers(2, p.Tk - 1))
    return attend(p, norm=lambda m, s, see: softmax(m + np.log(2) * (np.arange(p.Tk) < split)))


@fault("F84", causal=False)
def hole(p):
    slot = p.Tk - 1
    k, v = repeat(p.k, p), repeat(p.v, p)
    k[:, :, slot], v[:, :, slot] = 0, 0
    return attend(p, k=k, v=v)


fault("F84", causal=False)(lambda p: attend(p, k=np.roll(repeat(p.k, p), 1, 2), v=np.roll(repeat(p.v, p), 1, 2)))


@fault("F87", G=3)
def cache_scale(p):
    factor = p.rng.uniform(0.3, 3, p.G)
    return attend(p, k=np.repeat(p.k * factor[None, :, None, None], p.group, 1))

fault("F95", Tk=13, Tq=13, also=["F60"])(lambda p: attend(p, product=lambda w, v: w.swapaxes(-1, -2) @ v))
