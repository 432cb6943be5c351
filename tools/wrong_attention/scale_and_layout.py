"""Faults of the scale, of heads, of the batch and of memory: F01-F21, F94, F99-F101, F104, F105, F110."""

import numpy as np

from .problem import attend, repeat, rules, softmax
from .registry import MULTIHEAD, fault

fault("F01")(lambda p: attend(p, scale=1))
fault("F02")(lambda p: attend(p, scale=1 / p.d))
fault("F03")(lambda p: attend(p, scale=np.sqrt(p.d)))
fault("F04", also=["F05"], G=2)(lambda p: attend(p, scale=1 / np.sqrt(p.d * p.H)))
fault("F04", also=["F05"], d=6)(lambda p: attend(p, scale=1 / np.sqrt(64)))
fault("F05", also=["F04"])(lambda p: attend(p, scale=0.0))
fault("F05", also=["F04"], d=16)(lambda p: attend(p, scale=0.5))
fault("F05", also=["F04", "F87"])(lambda p: attend(p, scale=p.scale * float(p.rng.choice([p.rng.uniform(0.2, 0.8), p.rng.uniform(1.25, 3)]))))


@fault("F06", Tk=33)
def compound(p):
    block = int(p.rng.choice([4, 8, 16]))
    return attend(p, scores=lambda s: s * 1.4426950408889634 ** (np.arange(p.Tk) // block))


fault("F07")(lambda p: attend(p, scale=1, after=lambda w, see: w * p.scale))
fault("F08")(lambda p: attend(p, product=lambda w, v: float(p.rng.uniform(1.2, 3)) * (w @ v)))


def by_view(x):
    """[B,H,T,d] whose memory is [B,T,H,d], read as [B,H,T,d]."""
    b, h, t, d = x.shape
    return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(b, h, t, d)


fault("F10", also=["F13"], **MULTIHEAD)(lambda p: attend(p, q=by_view(p.q.astype(float)), k=by_view(repeat(p.k, p)), v=by_view(repeat(p.v, p))))


def as_tokens_first(x):
    """[B,H,T,d] whose memory is read as [B,T,H,d]."""
    b, h, t, d = x.shape
    return x.reshape(b, t, h, d).swapaxes(1, 2)


fault("F10", also=["F13"], **MULTIHEAD)(lambda p: attend(p, q=as_tokens_first(p.q.astype(float)), k=as_tokens_first(repeat(p.k, p)), v=as_tokens_first(repeat(p.v, p))))


@fault("F11", **MULTIHEAD)
def merge(p):
    r = attend(p)
    o = r["context"]
    r["context"] = o.reshape(p.B, p.Tq, p.H * p.dv).reshape(p.B, p.Tq, p.H, p.dv).swapaxes(1, 2)
    return r


@fault("F12", B=3, causal=False, Tk=9, Tq=9)
def along_batch(p):
    q, k, v = (x.transpose(2, 1, 0, 3) for x in (p.q.astype(float), repeat(p.k, p), repeat(p.v, p)))
    w = softmax(q @ k.swapaxes(-1, -2) * p.scale)
    return {"context": (w @ v).transpose(2, 1, 0, 3)}


fault("F13", also=["F14"], **MULTIHEAD)(lambda p: attend(p, k=by_view(repeat(p.k, p))))
fault("F13", **MULTIHEAD)(lambda p: attend(p, q=by_view(p.q.astype(float))))
fault("F13")(lambda p: attend(p, k=np.repeat(np.ascontiguousarray(p.k.astype(float).swapaxes(2, 3)).reshape(p.k.shape), p.group, 1)))
fault("F14", also=["F13"], **MULTIHEAD)(lambda p: attend(p, v=by_view(repeat(p.v, p))))
fault("F15", G=3)(lambda p: attend(p, k=np.repeat(p.k[:, :1].astype(float), p.H, 1), v=np.repeat(p.v[:, :1].astype(float), p.H, 1)))
fault("F15", G=2)(lambda p: attend(p, v=np.repeat(p.v[:, :1].astype(float), p.H, 1)))
fault("F16", G=2, group=2)(lambda p: attend(p, k=np.tile(p.k, (1, 2, 1, 1)).astype(float), v=np.tile(p.v, (1, 2, 1, 1)).astype(float)))
fault("F16", G=2, group=3)(lambda p: attend(p, k=np.tile(p.k, (1, 3, 1, 1)).astype(float), v=np.tile(p.v, (1, 3, 1, 1)).astype(float)))
along_tokens = lambda x, p: np.repeat(x.astype(float), p.group, 2).reshape(p.B, p.H, p.Tk, x.shape[-1])
fault("F17", G=2, group=2)(lambda p: attend(p, k=along_tokens(p.k, p), v=along_tokens(p.v, p)))


@fault("F18", G=3, group=1, d=8, dv=8, Tk=13, Tq=13)
def fused_order(p):
    blocks = np.concatenate([p.q, p.k, p.v], axis=1).astype(float)  # heads side by side: q…, k…, v…
    per_head = blocks.reshape(p.B, p.H, 3, p.Tk, p.d)
    return attend(p, q=per_head[:, :, 0], k=per_head[:, :, 1], v=per_head[:, :, 2])


fault("F19", d=8, dv=8)(lambda p: attend(p, v=repeat(p.k, p)))
fault("F19", d=8, dv=8)(lambda p: attend(p, k=repeat(p.v, p), v=repeat(p.k, p)))
fault("F19", d=8, dv=8)(lambda p: attend(p, k=repeat(p.v, p)))


@fault("F20", B=2, G=3, group=1, mask=True)
def tiled_mask(p):
    m = np.tile(p.mask[:, 0], (p.H, 1, 1)).reshape(p.B, p.H, p.Tq, p.Tk)
    return attend(p, see=rules(p) & m)


@fault("F21", mask=True, Tk=21, Tq=12)
def square_mask(p):
    rows = (np.arange(p.Tq)[:, None] * p.Tq + np.arange(p.Tk)[None, :]) % (p.Tq * p.Tk)
    m = p.mask.reshape(p.B, 1, -1)[..., rows.ravel()].reshape(p.mask.shape)
    return attend(p, see=np.broadcast_to(rules(p) & m, (p.B, p.H, p.Tq, p.Tk)))


fault("F94", group=1, Tk=13, Tq=13)(lambda p: attend(p, q=p.k.astype(float), k=p.q.astype(float)))
fault("F94", group=2, Tk=13, Tq=13)(lambda p: attend(p, q=repeat(p.k, p), k=p.q.astype(float)))


@fault("F99", also=["F15", "F16"], **MULTIHEAD)
def permuted(p):
    r = attend(p)
    order = np.roll(np.arange(p.H), int(p.rng.integers(1, p.H)))
    r["context"], r["weights"] = r["context"][:, order], r["weights"][:, order]
    return r


fault("F99", also=["F15"], G=32, group=1, Tk=9)(permuted)


@fault("F16", also=["F99"], G=8, group=4, Tk=9)
def other_groups(p):
    order = p.rng.permutation(p.H) // p.group
    return attend(p, k=p.k.astype(float)[:, order], v=p.v.astype(float)[:, order])


fault("F15", also=["F99"], G=5, group=1)(lambda p: attend(p, k=np.roll(p.k, 2, 1).astype(float), v=np.roll(p.v, 2, 1).astype(float)))


@fault("F105", B=3)
def another_cache(p):
    order = p.rng.permutation([[1, 2, 0], [2, 0, 1], [1, 0, 2], [0, 0, 0], [0, 0, 1]])[0]
    return attend(p, k=repeat(p.k, p)[order], v=repeat(p.v, p)[order])


@fault("F105", B=3)
def another_result(p):
    r, order = attend(p), p.rng.permutation([[1, 2, 0], [2, 0, 1], [2, 1, 0], [0, 0, 0]])[0]
    r["context"], r["weights"] = r["context"][order], r["weights"][order]
    return r


@fault("F105", B=24, Tk=9)
def shuffled_caches(p):
    order = p.rng.permutation(p.B)
    return attend(p, k=repeat(p.k, p)[order], v=repeat(p.v, p)[order])


@fault("F105", B=4)
def another_cache_of_values(p):
    order = np.roll(np.arange(4), int(p.rng.integers(1, 4)))
    return attend(p, **({"k": repeat(p.k, p)[order]} if p.rng.random() < 0.5 else {"v": repeat(p.v, p)[order]}))


def normalised(p, size):
    epsilon = p.rng.choice([1e-6, 1e-5])
    over = lambda x: x / size(x.astype(float), epsilon)
    return attend(p, q=over(p.q), k=np.repeat(over(p.k), p.group, 1))


fault("F110")(lambda p: normalised(p, lambda x, epsilon: np.linalg.norm(x, axis=-1, keepdims=True)))
fault("F110")(lambda p: normalised(p, lambda x, epsilon: np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)))
fault("F110")(lambda p: attend(p, q=(p.q - p.q.mean(-1, keepdims=True, dtype=float)) / np.sqrt(p.q.astype(float).var(-1, keepdims=True) + 1e-5)))
fault("F110")(lambda p: attend(p, k=repeat(p.k, p) / np.linalg.norm(repeat(p.k, p), axis=-1, keepdims=True)))
fault("F110", G=2)(lambda p: normalised(p, lambda x, epsilon: np.sqrt((x**2).mean((1, 3), keepdims=True) + epsilon)))


@fault("F100", causal=False, Tk=9, Tq=9, G=3)
def along_heads(p):
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (p.q.astype(float), repeat(p.k, p), repeat(p.v, p)))
    w = softmax(q @ k.swapaxes(-1, -2) * p.scale)
    return {"context": (w @ v).transpose(0, 2, 1, 3)}


def with_heads(p, heads):
    """Heads side by side [B,T,H·d] cut into another number of them."""
    cut = lambda x: x.swapaxes(1, 2).reshape(p.B, x.shape[2], heads, -1).swapaxes(1, 2)
    q, k, v = (cut(x.astype(float)) for x in (p.q, p.k, p.v))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    see = rules(p) if p.mask is None else rules(p) & p.mask
    o = softmax(np.where(see, s, -np.inf)) @ v
    return {"context": o.swapaxes(1, 2).reshape(p.B, p.Tq, p.H, p.dv).swapaxes(1, 2)}


fault("F101", G=6, group=1, d=8, dv=8)(lambda p: with_heads(p, int(p.rng.choice([1, 2, 3]))))
fault("F101", G=3, group=1, d=8, dv=8)(lambda p: with_heads(p, int(p.rng.choice([6, 12]))))


fault("F104")(lambda p: attend(p, q=p.q[:, :, ::-1].astype(float)))
fault("F104")(lambda p: attend(p, k=repeat(p.k, p)[:, :, ::-1]))
fault("F104")(lambda p: attend(p, v=repeat(p.v, p)[:, :, ::-1]))
fault("F104", causal=True)(lambda p: attend(p, k=repeat(p.k, p)[:, :, ::-1], v=repeat(p.v, p)[:, :, ::-1]))
fault("F104", causal=True, Tk=13, Tq=13)(lambda p: attend(p, q=p.q[:, :, ::-1].astype(float), k=repeat(p.k, p)[:, :, ::-1], v=repeat(p.v, p)[:, :, ::-1]))
