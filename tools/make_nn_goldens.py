"""Layers as PyTorch computes them, forward and backward, in double: testdata/nn.

    python tools/make_nn_goldens.py testdata/nn

Each file holds the inputs of a layer, its parameters under `state.` as a state_dict names them, `y`, a gradient `d_y` of some loss by it, and
what follows from that: `d_<input>` and, under `grad.`, the gradients by the parameters.
"""
import pathlib
import sys

import torch

import safetensors_file

torch.set_default_dtype(torch.float64)
torch.set_num_threads(2)  # the last bits of two of the files depend on it


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def spread(module):
    """Numbers of size 1 everywhere, biases and norms included, so that none can be forgotten."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.6 + 0.1)
    return module


def record(path, module, inputs, y, extra=None, rename=lambda name: name):
    d_y = torch.randn_like(y)
    y.backward(d_y)
    arrays = {"y": y, "d_y": d_y, **inputs, **(extra or {})}
    arrays |= {f"d_{name}": x.grad for name, x in inputs.items()}
    for name, parameter in module.named_parameters():
        arrays["state." + rename(name)] = parameter
        arrays["grad." + rename(name)] = parameter.grad
    safetensors_file.write(path, {name: array.detach().contiguous().numpy() for name, array in arrays.items()}, {})


def causal(tokens):
    return torch.ones(tokens, tokens, dtype=torch.bool).tril()


class Conv1D(torch.nn.Module):
    """GPT-2's linear layer: its matrix is [in, out]."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(n_in, n_out))
        self.bias = torch.nn.Parameter(torch.empty(n_out))

    def forward(self, x):
        return x @ self.weight + self.bias


class Gpt2Attention(torch.nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(dim, 3 * dim)
        self.c_proj = Conv1D(dim, dim)

    def forward(self, x):
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q, k, v = map(split, self.c_attn(x).chunk(3, dim=-1))
        context = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=causal(x.shape[1]))
        return self.c_proj(context.transpose(1, 2).flatten(2))


class Gpt2Mlp(torch.nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.c_fc = Conv1D(dim, hidden)
        self.c_proj = Conv1D(hidden, dim)

    def forward(self, x):
        return self.c_proj(torch.nn.functional.gelu(self.c_fc(x), approximate="tanh"))


class Gpt2Block(torch.nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.ln_1 = torch.nn.LayerNorm(dim)
        self.attn = Gpt2Attention(dim, heads)
        self.ln_2 = torch.nn.LayerNorm(dim)
        self.mlp = Gpt2Mlp(dim, hidden)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GroupedRotary(torch.nn.Module):
    """LLaMA's attention: grouped heads, rotary positions in halves, no biases."""

    def __init__(self, dim, heads, kv_heads, head_dim):
        super().__init__()
        linear = lambda n_in, n_out: torch.nn.Linear(n_in, n_out, bias=False)
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.q_proj, self.k_proj = linear(dim, heads * head_dim), linear(dim, kv_heads * head_dim)
        self.v_proj, self.o_proj = linear(dim, kv_heads * head_dim), linear(heads * head_dim, dim)

    def rotate(self, x):
        half = self.head_dim // 2
        angle = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
        low, high = x[..., :half], x[..., half:]
        return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], -1)

    def forward(self, x):
        split = lambda t, heads: t.unflatten(-1, (heads, self.head_dim)).transpose(1, 2)
        repeat = lambda t: t.repeat_interleave(self.heads // self.kv_heads, dim=1)
        q = self.rotate(split(self.q_proj(x), self.heads))
        k = repeat(self.rotate(split(self.k_proj(x), self.kv_heads)))
        v = repeat(split(self.v_proj(x), self.kv_heads))
        context = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=causal(x.shape[1]))
        return self.o_proj(context.transpose(1, 2).flatten(2))


class SelfAttention(torch.nn.Module):
    """The course's single head."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_query = torch.nn.Linear(d_in, d_out, bias=False)
        self.W_key = torch.nn.Linear(d_in, d_out, bias=False)
        self.W_value = torch.nn.Linear(d_in, d_out, bias=False)

    def forward(self, x):
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        return torch.softmax(q @ k.mT / k.shape[-1] ** 0.5, dim=-1) @ v


def adamw(path):
    """Four updates of a matrix, which decays, and of a bias, which does not."""
    matrix, bias = torch.nn.Parameter(torch.randn(3, 5)), torch.nn.Parameter(torch.randn(5))
    optimizer = torch.optim.AdamW([{"params": [matrix], "weight_decay": 0.1}, {"params": [bias], "weight_decay": 0.0}],
                                  lr=0.03, betas=(0.9, 0.95), eps=1e-8)
    arrays = {"matrix.0": matrix.detach().clone(), "bias.0": bias.detach().clone()}
    for step in range(1, 5):
        for name, parameter in ("matrix", matrix), ("bias", bias):
            parameter.grad = torch.randn_like(parameter) * 10.0 ** -step
            arrays[f"{name}.grad.{step}"] = parameter.grad.clone()
        optimizer.step()
        arrays |= {f"matrix.{step}": matrix.detach().clone(), f"bias.{step}": bias.detach().clone()}
    safetensors_file.write(path, {name: array.numpy() for name, array in arrays.items()}, {})


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(6)

    layer = spread(torch.nn.MultiheadAttention(12, 3, batch_first=True))
    x = leaf(2, 7, 12)
    record(folder / "torch_causal.safetensors", layer, {"x": x}, layer(x, x, x, attn_mask=~causal(7), need_weights=False)[0])

    layer = spread(torch.nn.MultiheadAttention(12, 3, kdim=5, vdim=8, batch_first=True))
    query, key, value = leaf(2, 4, 12), leaf(2, 6, 5), leaf(2, 6, 8)
    mask = torch.rand(4, 6) < 0.6  # true: may attend
    mask[:, 2] = True
    record(folder / "torch_cross.safetensors", layer, {"query": query, "key": key, "value": value},
           layer(query, key, value, attn_mask=~mask, need_weights=False)[0], {"mask": mask})

    layer = spread(torch.nn.MultiheadAttention(8, 2, bias=False, batch_first=True))
    query, key, value = leaf(3, 5, 8), leaf(3, 2, 8), leaf(3, 2, 8)
    record(folder / "torch_cross_same_width.safetensors", layer, {"query": query, "key": key, "value": value},
           layer(query, key, value, need_weights=False)[0])

    layer, x = spread(Gpt2Block(12, 3, 20)), leaf(2, 7, 12)
    record(folder / "gpt2_block.safetensors", layer, {"x": x}, layer(x))
    layer, x = spread(GroupedRotary(10, 6, 2, 4)), leaf(2, 9, 10)
    record(folder / "grouped_rotary.safetensors", layer, {"x": x}, layer(x))
    layer, x = spread(SelfAttention(3, 4)), leaf(6, 3)
    record(folder / "course.safetensors", layer, {"x": x}, layer(x))
    adamw(folder / "adamw.safetensors")
    layer, x = spread(torch.nn.RMSNorm(5, eps=0.25)), leaf(2, 3, 5)  # large enough to show
    record(folder / "rms_norm.safetensors", layer, {"x": x}, layer(x))


if __name__ == "__main__":
    main(sys.argv[1])
