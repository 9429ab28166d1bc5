"""Prints the rates that PyTorch reaches on a GPU: copies, matrix products, nodes of a CUDA graph, attention."""

import torch
import torch.nn.functional as F


def seconds(work, calls=10):
    """Returns the seconds of one call of `work`."""
    for _ in range(3):
        work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / calls / 1e3


def per_node(work, count=1000):
    """Returns the microseconds of `work` as one of `count` nodes of a replayed graph, each after the one before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        for _ in range(count):
            work()
    return 1e6 * seconds(graph.replay) / count


def products():
    for name, dtype, tf32 in (("bf16", torch.bfloat16, False), ("tf32", torch.float32, True), ("f32", torch.float32, False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=dtype) for _ in range(2))
        print(f"product, {name}, 8192 x 8192 x 8192: {2 * 8192**3 / seconds(lambda: a @ b) / 1e12:.0f} TFLOP/s")
        for width in (64, 512):
            x, g = (torch.randn(32768, width, device="cuda", dtype=dtype) for _ in range(2))
            w = torch.randn(width, width, device="cuda", dtype=dtype)
            print(f"    gradient of a weight, {width} x 32768 x {width}: {1e6 * seconds(lambda: g.T @ x, 100):.1f} us,"
                  f" output, 32768 x {width} x {width}: {1e6 * seconds(lambda: x @ w, 100):.1f} us")


def attention():
    for heads, length in ((8, 1024), (8, 4096)):
        q, k, v = (torch.randn(8, heads, length, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        forward = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
        g = torch.randn_like(q)
        both = lambda: torch.autograd.grad(forward(), (q, k, v), g)
        print(f"causal attention, bf16, (8, {heads}, {length}, 64): forward {1e6 * seconds(forward):.0f} us, "
              f"forward and backward {1e6 * seconds(both):.0f} us")


print(torch.cuda.get_device_name(), "CUDA", torch.version.cuda, "PyTorch", torch.__version__)
x = torch.randn(1 << 30, device="cuda")
y = torch.empty_like(x)
print(f"copy of 4 GiB: {2 * x.nbytes / seconds(lambda: y.copy_(x)) / 1e12:.2f} TB/s read and written")
del x, y
products()
one, many = torch.zeros(1, device="cuda"), torch.zeros(1 << 21, device="cuda")
print(f"node of a graph: add to 1 number {per_node(lambda: one.add_(1)):.2f} us, "
      f"clear 1 number {per_node(one.zero_):.2f} us, add to 2 M numbers {per_node(lambda: many.add_(1)):.2f} us")
attention()
