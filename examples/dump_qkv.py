"""Writes what PyTorch's scaled_dot_product_attention is called with, layer by layer, for `regard check` and `regard run`.

    from dump_qkv import dump_qkv
    with dump_qkv("layers.safetensors", layers=[0, 3], tokens=tokenizer.convert_ids_to_tokens(ids)):
        model(ids)                                     # attn_implementation="sdpa" in transformers
    # regard check layers.safetensors --layer 3        compares PyTorch's own result, saved as layers.3.context

    python dump_qkv.py OUT --layers 0,3 -- script.py ARGS      runs a script that calls the model, and writes the same
"""

import argparse
import contextlib
import json
import runpy
import sys

import torch
from safetensors.torch import save_file


@contextlib.contextmanager
def dump_qkv(path, layers=None, tokens=None):
    """Records the calls whose number, counted from 0, is in `layers` (None: all)."""
    original, tensors, count = torch.nn.functional.scaled_dot_product_attention, {}, 0

    def recorded(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **more):
        nonlocal count
        result = original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **more)
        if layers is None or count in layers:
            four = lambda x: x.detach().reshape((1,) * (4 - x.dim()) + x.shape).cpu().contiguous().clone()
            call = {"q": four(query), "k": four(key), "v": four(value), "context": four(result)}
            if attn_mask is not None:
                call["mask" if attn_mask.dtype == torch.bool else "bias"] = four(attn_mask)
            call["scale"] = torch.tensor(query.shape[-1] ** -0.5 if scale is None else scale, dtype=torch.float32)
            call["causal"] = torch.tensor(bool(is_causal))
            call["q_offset"] = torch.tensor(0)  # PyTorch aligns is_causal top-left
            tensors.update({f"layers.{count}.{name}": tensor for name, tensor in call.items()})
        count += 1
        return result

    torch.nn.functional.scaled_dot_product_attention = recorded
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = original
        save_file(tensors, path, metadata={"tokens": json.dumps(list(tokens))} if tokens is not None else None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--layers", help="numbers separated by commas; default all")
    parser.add_argument("script", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    sys.argv = args.script[args.script[:1] == ["--"] :]
    with dump_qkv(args.out, args.layers and [int(n) for n in args.layers.split(",")]):
        runpy.run_path(sys.argv[0], run_name="__main__")
