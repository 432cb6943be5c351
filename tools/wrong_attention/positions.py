"""Faults of rotary embedding and ALiBi: F25-F30, F111. The problem's q and k are rotated by the right rule; the wrong ones are made from the same
unrotated tensors."""

import numpy as np

from .problem import attend
from .registry import fault


def rotate(x, pos, pairing="halves", base=10000.0):
    d = x.shape[-1]
    angle = pos[..., None] * base ** (-np.arange(d // 2) * 2 / d)
    cos, sin = np.cos(angle), np.sin(angle)
    out = np.empty_like(x)
    if pairing == "halves":
        a, b = x[..., : d // 2], x[..., d // 2 :]
        out[..., : d // 2], out[..., d // 2 :] = a * cos - b * sin, a * sin + b * cos
    else:
        a, b = x[..., 0::2], x[..., 1::2]
        out[..., 0::2], out[..., 1::2] = a * cos - b * sin, a * sin + b * cos
    return out


def rope(name, with_pre=True, also=(), pairing="halves", **want):
    def register(function):
        def make(p):
            qpre, kpre = p.q.astype(float), p.k.astype(float)
            kpos = np.broadcast_to(np.arange(p.Tk, dtype=float), (p.B, p.Tk))
            if want.get("row_positions"):
                kpos = np.maximum(np.arange(p.Tk)[None, :] - np.arange(p.B)[:, None] * 3.0, 0)
                p.extra["positions"] = kpos.astype(np.int64)
            qpos = np.take_along_axis(kpos, np.clip(np.arange(p.Tq)[None, :] + p.offset[:, None], 0, p.Tk - 1), 1)
            p.q = rotate(qpre, qpos[:, None], pairing).astype(np.float32)
            p.k = rotate(kpre, kpos[:, None], pairing).astype(np.float32)
            if with_pre:
                p.extra["q_pre_rope"], p.extra["k_pre_rope"] = qpre.astype(np.float32), kpre.astype(np.float32)
            q, k = function(p, qpre, kpre, qpos[:, None], kpos[:, None])
            return attend(p, q=q, k=np.repeat(k, p.group, 1))

        fault(name, also=also, align="bottom", **{k: v for k, v in want.items() if k != "row_positions"})(make)
        return function

    return register


other_pairing = lambda p, q, k, qp, kp: (rotate(q, qp, "neighbours"), rotate(k, kp, "neighbours"))
rope("F25", d=8)(other_pairing)
rope("F25", d=8, with_pre=False)(other_pairing)
rope("F25", d=8, pairing="neighbours")(lambda p, q, k, qp, kp: (rotate(q, qp), rotate(k, kp)))


@rope("F26", d=8, pairing="neighbours")
def output_order(p, q, k, qp, kp):
    r = rotate(q, qp, "neighbours")
    return np.concatenate([r[..., 0::2], r[..., 1::2]], -1), rotate(k, kp, "neighbours")


rope("F27", d=8)(lambda p, q, k, qp, kp: (rotate(q, qp + 1), rotate(k, kp)))
rope("F27", d=8, Tk=21, Tq=5)(lambda p, q, k, qp, kp: (rotate(q, np.arange(p.Tq, dtype=float)[None, None]), rotate(k, kp)))
rope("F28", d=8, B=3, row_positions=True, Tk=21, Tq=21)(lambda p, q, k, qp, kp: (rotate(q, np.arange(p.Tq, dtype=float)[None, None]), rotate(k, np.arange(p.Tk, dtype=float)[None, None])))
rope("F29", d=8, G=3, group=1)(lambda p, q, k, qp, kp: tuple(rotate(x, np.arange(x.shape[1], dtype=float)[None, :, None]) for x in (q, k)))
rope("F111", d=8)(lambda p, q, k, qp, kp: (q, k))
rope("F111", d=8, with_pre=False)(lambda p, q, k, qp, kp: (q, k))
rope("F111", d=8)(lambda p, q, k, qp, kp: (rotate(q, qp), k))
rope("F111", d=8, with_pre=False)(lambda p, q, k, qp, kp: (rotate(rotate(q, qp), qp), rotate(k, kp)))
rope("F111", d=8)(lambda p, q, k, qp, kp: (rotate(rotate(q, qp), qp), rotate(rotate(k, kp), kp)))


@fault("F111", d=8, align="bottom")
def given_before_the_rotation(p):
    base = float(p.rng.choice([10000, 500000, 1000000]))
    qp = np.arange(p.Tq)[None, None] + p.offset[:, None, None].astype(float)
    kp = np.arange(p.Tk, dtype=float)[None, None]
    return attend(p, q=rotate(p.q.astype(float), qp, base=base), k=np.repeat(rotate(p.k.astype(float), kp, base=base), p.group, 1))


fault("F30", slopes=True, G=2)(lambda p: attend(p, slopes=2.0 ** (-8 * np.arange(p.H) / p.H)))
fault("F30", slopes=True, G=3)(lambda p: attend(p, slopes=2.0 ** (-8 * (np.arange(p.H) + 1) / p.H)))
