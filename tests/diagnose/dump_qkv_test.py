"""What examples/dump_qkv.py writes goes straight through `regard check`, `run` and `map`, and is what PyTorch computed.

    python tests/diagnose/dump_qkv_test.py build/regard       exit status 77 where torch or safetensors is not installed
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import safetensors  # noqa: F401
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
from dump_qkv import dump_qkv  # noqa: E402
from torch.nn.attention.bias import causal_lower_right  # noqa: E402

attention = torch.nn.functional.scaled_dot_product_attention
random = torch.randn
TOKENS = ["when", "on", "board", "h.m.s", "beagle", "as", "naturalist"]

# Each call, and what `regard check` must say of how it was read.
CALLS = {
    "grouped heads, causal": (lambda f: f(random(2, 6, 7, 8), random(2, 2, 7, 8), random(2, 2, 7, 5), enable_gqa=True, is_causal=True), "heads 6 (kv_heads 2), tokens 7, dim 8, v_dim 5; causal"),
    "bool mask": (lambda f: f(*random(3, 1, 3, 7, 8), attn_mask=torch.rand(7, 7) < 0.7), "mask 1×1×7×7"),
    "float mask and scale": (lambda f: f(*random(3, 2, 3, 7, 8), attn_mask=random(2, 1, 7, 7), scale=0.3), "scale 0.3; bias 2×1×7×7"),
    "padding as −inf": (lambda f: f(*random(3, 2, 3, 7, 8), attn_mask=torch.zeros(2, 1, 1, 7).masked_fill(torch.arange(7) > 4, -torch.inf)), "bias 2×1×1×7"),
    "bf16": (lambda f: f(*random(3, 2, 3, 7, 16).bfloat16(), is_causal=True), "causal"),
    "f16": (lambda f: f(*random(3, 1, 3, 7, 16).half()), "not causal"),
    "causal from the top left": (lambda f: f(random(1, 3, 4, 8), *random(2, 1, 3, 7, 8), is_causal=True), "q_len 4, kv_len 7, dim 8; causal, q_offset 0"),
    "causal from the bottom right": (lambda f: f(random(1, 3, 4, 8), *random(2, 1, 3, 7, 8), attn_mask=causal_lower_right(4, 7)), "mask"),
    "no batch": (lambda f: f(*random(3, 3, 7, 8)), "batch 1, heads 3"),
    "keys of one batch for all": (lambda f: f(random(2, 3, 7, 8), *random(2, 2, 1, 7, 8)), "heads 3 (kv_heads 1)"),
}


def regard(command, *arguments):
    done = subprocess.run([command, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def main():
    command, folder = sys.argv[1], pathlib.Path(tempfile.mkdtemp())
    torch.manual_seed(0)
    calls = folder / "calls.safetensors"
    with torch.no_grad(), dump_qkv(calls, tokens=TOKENS):
        for call, _ in CALLS.values():
            call(torch.nn.functional.scaled_dot_product_attention)
    assert torch.nn.functional.scaled_dot_product_attention is attention
    for layer, (name, (_, reading)) in enumerate(CALLS.items()):
        told = json.loads(regard(command, "check", str(calls), "--layer", str(layer), "--json"))
        assert told["verdict"] in ("match", "rounding"), f"{name}: {told['summary']}"
        assert reading in told["reading"], f"{name}: {told['reading']!r} lacks {reading!r}"
        regard(command, "run", str(calls), "--layer", str(layer))
    assert "heads 6" in regard(command, "map", str(calls), "--layer", "0")
    assert "beagle" in regard(command, "explain", str(calls), "--row", "4")

    # A whole model, two layers, of which the second is kept.
    layer = torch.nn.TransformerEncoderLayer(12, 3, 24, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    kept = folder / "kept.safetensors"
    with torch.no_grad(), dump_qkv(kept, layers=[1]):
        model(random(2, 7, 12))
    assert "layer 1, batch 2, heads 3, tokens 7, dim 4" in regard(command, "check", str(kept))

    # As a program around a script.
    script = folder / "script.py"
    script.write_text("import torch\nq = torch.ones(1, 2, 5, 4)\ntorch.nn.functional.scaled_dot_product_attention(q, q, q)\n")
    dump, out = pathlib.Path(sys.modules["dump_qkv"].__file__), folder / "script.safetensors"
    subprocess.run([sys.executable, dump, out, "--layers", "0", "--", script], check=True)
    assert "heads 2, tokens 5" in regard(command, "check", str(out))
    print(f"{len(CALLS)} calls, a model and a script")


if __name__ == "__main__":
    main()
