"""Faults of caches, merging, the value product and what is returned besides: F77-F89, F95."""

import numpy as np

from .problem import INF, attend, repeat, rules, softmax
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


def lse(m, sink):
    m = m if sink is None else np.concatenate([m, np.broadcast_to(sink, m.shape[:-1] + (1,))], -1)
    top = m.max(-1, keepdims=True)
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(top), top + np.log(np.exp(m - top).sum(-1, keepdims=True)), -INF)[..., 0]


@fault("F77", observe="lse", mask=True)
def lse_before_mask(p):
    return {**attend(p), "lse": lse(attend(p, hide=lambda m, see: m)["masked_scores"], None)}


@fault("F77", observe="lse")
def lse_over_unused_slots(p):
    r = attend(p)
    unused = np.zeros(r["masked_scores"].shape[:-1] + (int(p.rng.integers(1, 40)),))
    return {**r, "lse": lse(np.concatenate([r["masked_scores"], unused], -1), None)}


def through_cache(x, block, written, read):
    """Writes [.., tokens, dim] into a cache of zeros, blocks `written` rows apart, and reads them `read` rows apart."""
    tokens = x.shape[2]
    cache = np.zeros(x.shape[:2] + (tokens * 4 + 4 * block, x.shape[3]))
    at = lambda stride: np.arange(tokens) // block * stride + np.arange(tokens) % block
    cache[:, :, at(written)] = x
    return cache[:, :, at(read)]


@fault("F85", causal=False, Tk=33)
def strides(p):
    block = int(p.rng.choice([4, 8, 16]))
    written, read = [(block, 2 * block), (2 * block, block)][int(p.rng.integers(2))]
    return attend(p, k=through_cache(repeat(p.k, p), block, written, read), v=through_cache(repeat(p.v, p), block, written, read))


@fault("F85", causal=False, Tk=33)
def next_block(p):
    block = int(p.rng.choice([4, 8]))
    later = lambda x: np.concatenate([x[:, :, block:], np.zeros_like(x[:, :, :block])], 2)
    return attend(p, k=later(repeat(p.k, p)), v=later(repeat(p.v, p)))


@fault("F86", causal=False, mask=True, Tk=21, Tq=12)
def shortcut(p):
    """A cache whose slots hold positions out of order: what was evicted has been overwritten. The mask goes by positions, the shortcut by slots."""
    position = np.stack([p.rng.permutation(p.Tk) for _ in range(p.B)])
    p.mask = position[:, None, None, :] <= np.arange(p.Tq)[None, None, :, None] + p.Tk - p.Tq
    return attend(p, see=np.broadcast_to(np.arange(p.Tk) <= np.arange(p.Tq)[:, None] + p.Tk - p.Tq, (p.B, p.H, p.Tq, p.Tk)))


@fault("F89", mask=True)
def not_written(p):
    p.mask = p.mask.copy()
    p.mask[:, :, 1::3] = False
    empty = ~np.broadcast_to(rules(p) & p.mask, (p.B, p.H, p.Tq, p.Tk)).any(-1, keepdims=True)
    r = attend(p)
    r["context"] = np.where(empty, p.rng.normal(size=r["context"].shape), r["context"])
    return r
