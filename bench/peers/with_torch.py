"""PyTorch's scaled_dot_product_attention: the flash kernel and its gradients, and the route that also gives weights."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

VERSION = f"PyTorch {torch.__version__}"


def to_floats(context):
    return context.float().numpy()


def peers(shape, q, k, v, threads):
    """name -> a call that returns context [heads, tokens, dim]."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[shape.dtype]
    tq, tk, tv = (torch.from_numpy(x).to(dtype) for x in (q, k, v))
    grouped = shape.heads != shape.kv_heads

    def flash():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return scaled_dot_product_attention(tq, tk, tv, is_causal=shape.causal, enable_gqa=grouped)[0]

    # What asking for weights costs: the same call does not return them, so its materialising route is called directly.
    def math():
        context, _ = torch.ops.aten._scaled_dot_product_attention_math(
            tq, tk, tv, is_causal=shape.causal, enable_gqa=grouped)
        return context[0]

    return {"torch flash": flash, "torch math, weights": math}


def gradient_peers(shape, q, k, v, d_context, threads):
    """name -> a call that returns d_q, d_k and d_v, each [heads, tokens, dim]: the backward pass alone, after one forward pass."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    tq, tk, tv, gradient = (torch.from_numpy(x) for x in (q, k, v, d_context))
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    context, lse = forward(tq, tk, tv, 0.0, shape.causal)
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

    def flash():
        return [x[0].numpy() for x in backward(gradient, tq, tk, tv, context, lse, 0.0, shape.causal)]

    return {"torch flash": flash}
