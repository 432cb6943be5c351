"""Two faults at once: arguments of attend that combine, and what the problem must have."""

import numpy as np

from .problem import attend, repeat, rules, softmax, visible
from .scale_and_layout import by_view
from .softmax import columns

PAIR_PARTS = {
    "F01": ({}, lambda p: {"scale": 1}),
    "F02": ({}, lambda p: {"scale": 1 / p.d}),
    "F05": ({"d": 16}, lambda p: {"scale": 0.5}),
    "F35": ({"causal": True}, lambda p: {"see": visible(p, causal=False)}),
    "F38": ({"causal": True}, lambda p: {"see": visible(p, shift=1)}),
    "F16": ({"G": 2, "group": 2}, lambda p: {"k": np.tile(p.k, (1, 2, 1, 1)).astype(float), "v": np.tile(p.v, (1, 2, 1, 1)).astype(float)}),
    "F10": ({"G": 3, "group": 1}, lambda p: {"q": by_view(p.q.astype(float)), "k": by_view(repeat(p.k, p)), "v": by_view(repeat(p.v, p))}),
    "F63": ({}, lambda p: {"norm": lambda m, s, see: softmax(softmax(m))}),
    "F60": ({}, lambda p: {"norm": columns}),
    "F71": ({"cap": True}, lambda p: {"cap": None}),
    "F41": ({"mask": True}, lambda p: {"see": rules(p) & np.broadcast_to(~p.mask, (p.B, p.H, p.Tq, p.Tk))}),
    "F42": ({"mask": True, "causal": False}, lambda p: {"hide": lambda m, see: m + see}),
    "F08": ({}, lambda p: {"product": lambda w, v: 1.7 * (w @ v)}),
}
