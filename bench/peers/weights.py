#!/usr/bin/env python3
"""What knowing the weights costs: regard's streamed summaries beside PyTorch's eager weights and regard's staged path. See README.md.

Each answers the same: context, entropy of every row, its 8 largest weights, the mass of every key, and a pooled map of 64 × 64 bins.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np

import compare

_TOP_K, _BINS, _DIM = 8, 64, 64
_SHAPES = {2048: 8, 16384: 1}  # tokens: heads
_LARGEST_ERROR = 1e-4  # of an answer, as a part of its size; f32 errs by less than 2e-5


def status_bytes(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key + ":"))


# ------------------------------------------------------------------------------------------------------ the PyTorch side, a process of its own


def eager(torch, q, k, v):
    """The way of a notebook: all weights, then one call for each question."""
    weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), dim=-1)
    top = weights.topk(_TOP_K, dim=-1)
    bins = weights.unflatten(-1, (_BINS, -1)).sum(-1).unflatten(-2, (_BINS, -1)).mean(-2)
    return {"context": weights @ v, "entropy": torch.special.entr(weights).sum(-1), "topk_weight": top.values, "topk_index": top.indices,
            "key_mass": weights.sum(-2), "pooled": bins}


def run_torch(source, destination, seconds):
    import torch
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    arrays = np.load(source)
    q, k, v = (torch.from_numpy(arrays[name]) for name in "qkv")
    eager(torch, q[:, :, :_BINS], k[:, :, :_BINS], v[:, :, :_BINS])  # libraries load what they need
    before = status_bytes("VmRSS")
    answers = eager(torch, q, k, v)
    peak = status_bytes("VmHWM") - before
    np.savez(destination, **{name: answer.numpy() for name, answer in answers.items()})
    del answers
    median = compare.time_call(lambda: eager(torch, q, k, v), 1) if seconds > 0 else 0
    print(json.dumps({"seconds": median, "peak_bytes": peak, "version": torch.__version__}))


# ------------------------------------------------------------------------------------------------------------------------- what is right


def largest_error(q, k, v, answers):
    """Of every answer about the first head, against float64, as a part of the answer's largest value."""
    queries, keys, values = (x[0, 0].astype(np.float64) for x in (q, k, v))
    tokens = len(queries)
    mass, errors = np.zeros(tokens), []

    def compare_with(name, where, expected):
        got = answers[name][0, 0][where]
        errors.append(np.abs(got - expected).max() / np.abs(expected).max())

    step = tokens // _BINS
    for row in range(_BINS):
        where = slice(row * step, (row + 1) * step)
        scores = queries[where] @ keys.T / math.sqrt(_DIM)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mass += weights.sum(0)
        compare_with("context", where, weights @ values)
        compare_with("entropy", where, -(weights * np.log(weights)).sum(-1))
        compare_with("topk_weight", where, -np.sort(np.partition(-weights, _TOP_K - 1)[:, :_TOP_K]))
        compare_with("pooled", row, weights.reshape(step, _BINS, step).sum(-1).mean(0))
        named = np.take_along_axis(weights, answers["topk_index"][0, 0][where], axis=-1)
        errors.append(np.abs(named - answers["topk_weight"][0, 0][where]).max() / weights.max())
    compare_with("key_mass", slice(None), mass)
    return max(errors)


# --------------------------------------------------------------------------------------------------------------------------- the table


def run(command, source, folder, environment, seconds):
    """A process for each run: its peak of memory is its own."""
    answers = os.path.join(folder, "answers.npz")
    result = subprocess.run([*command, source, answers, str(seconds)], stdout=subprocess.PIPE, check=True, env=environment)
    return json.loads(result.stdout), answers


def measure(tokens, heads, sides):
    """side -> seconds and bytes"""
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal((1, heads, tokens, _DIM), dtype=np.float32) for _ in range(3))
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "inputs.npz")
        np.savez(source, q=q, k=k, v=v)
        for name, command in sides.items():
            # Memory as anybody's process has it; time with memory that stays mapped, as in compare.py.
            once, answers = run(command, source, folder, dict(os.environ), 0)
            error = largest_error(q, k, v, np.load(answers))
            if not error <= _LARGEST_ERROR:
                print(f"T = {tokens}: {name} is off by {error:.2g} and left out", file=sys.stderr)
                continue
            timed, _ = run(command, source, folder, {**os.environ, **compare.ENVIRONMENT}, compare.MIN_SECONDS)
            rows[name] = (timed["seconds"], once["peak_bytes"])
            print(f"T = {tokens}: {name} {compare.show(timed['seconds'])}, {once['peak_bytes'] / 2**20:.0f} MiB", file=sys.stderr)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokens", nargs="*", type=int, default=list(_SHAPES), help=f"of {list(_SHAPES)}")
    parser.add_argument("--regard", required=True, help="the program weights_of_regard")
    arguments = parser.parse_args()
    sides = {"regard": [arguments.regard, "fused"], "torch eager": [sys.executable, __file__, "--torch"],
             "regard staged": [arguments.regard, "staged"]}
    print("| tokens, heads | side | time | ratio | memory beside inputs | ratio |\n|---|---|---|---|---|---|")
    for tokens in arguments.tokens:
        if tokens not in _SHAPES:
            raise SystemExit(f"{tokens}: not a length; use {list(_SHAPES)}")
        rows = measure(tokens, _SHAPES[tokens], sides)
        seconds, peak = rows["regard"]
        for name, (time_of, peak_of) in rows.items():
            print(f"| {tokens:,}, {_SHAPES[tokens]} | {name} | {compare.show(time_of)} | {time_of / seconds:.2f}× "
                  f"| {peak_of / 2**20:,.0f} MiB | {peak_of / peak:.1f}× |")


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--torch":
        run_torch(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    else:
        main()
