#!/usr/bin/env python3
"""The selective scan in PyTorch, in several forms, to be timed beside `dsf bench op selective_scan`.

    h_t = exp(delta_t a) * h_{t-1} + delta_t u_t b_t,   y_t = h_t . c_t

u, delta: (B, L, d); a: (d, n); b, c: (B, L, n); y: (B, L, d).

    dsf bench op selective_scan --shape 8,512,128,64 --export scan.safetensors --repeats 1
    python scan.py --load scan.safetensors --form compiled

`--device cuda` computes on a GPU, where the clock waits for it. The form `mamba` is the CUDA kernel of
the package mamba_ssm; where that cannot be imported, the report says `absent`.
"""
import argparse
import json
import math
import resource
import statistics
import time

import numpy
import torch


def loop(u, delta, a, b, c):
    """The usual reference: both coefficients as (B, L, d, n) tensors, sliced by time."""
    decay = torch.exp(delta.unsqueeze(-1) * a)
    drive = (delta * u).unsqueeze(-1) * b.unsqueeze(2)
    h = torch.zeros_like(decay[:, 0])
    ys = []
    for t in range(u.shape[1]):
        h = decay[:, t] * h + drive[:, t]
        ys.append(torch.einsum("bdn,bn->bd", h, c[:, t]))
    return torch.stack(ys, 1)


def walk(u, delta, a, b, c):
    """The loop without those tensors; autograd keeps every state."""
    h = u.new_zeros(u.shape[0], *a.shape)
    ys = []
    for delta_t, drive_t, b_t, c_t in zip(*(x.unbind(1) for x in (delta, delta * u, b, c))):
        decay = torch.exp(delta_t.unsqueeze(-1) * a)
        h = torch.addcmul(drive_t.unsqueeze(-1) * b_t.unsqueeze(1), decay, h)
        ys.append(torch.bmm(h, c_t.unsqueeze(-1)).squeeze(-1))
    return torch.stack(ys, 1)


class Replay(torch.autograd.Function):
    """Saves one state per stretch of time; the backward pass recomputes a stretch and scans it in reverse."""

    @staticmethod
    def forward(ctx, drive, delta, a, b, c, stretch):
        batch, length, width = delta.shape
        h = delta.new_zeros(batch, *a.shape)
        decay, y, kept = torch.empty_like(h), torch.empty(length, batch, width, 1), []
        y = y.to(delta)
        for t in range(length):
            if t % stretch == 0:
                kept.append(h.clone())
            torch.mul(delta[:, t].unsqueeze(-1), a, out=decay).exp_()
            h.mul_(decay).addcmul_(drive[:, t].unsqueeze(-1), b[:, t].unsqueeze(1))
            torch.bmm(h, c[:, t].unsqueeze(-1), out=y[t])
        ctx.save_for_backward(drive, delta, a, b, c, *kept)
        ctx.stretch = stretch
        return y.squeeze(-1).transpose(0, 1)

    @staticmethod
    def backward(ctx, dy):
        drive, delta, a, b, c, *kept = ctx.saved_tensors
        length = delta.shape[1]
        d_drive, d_delta, d_a = torch.empty_like(drive), torch.empty_like(delta), torch.zeros_like(a)
        d_b, d_c = torch.empty_like(b), torch.empty_like(c)
        back = torch.zeros_like(kept[0])  # gradient of the state, carried back in time
        for first in reversed(range(0, length, ctx.stretch)):
            last = min(first + ctx.stretch, length)
            states, decays = [kept[first // ctx.stretch]], []
            for t in range(first, last):
                decays.append(torch.exp_(delta[:, t].unsqueeze(-1) * a))
                new = drive[:, t].unsqueeze(-1) * b[:, t].unsqueeze(1)
                states.append(new.addcmul_(decays[-1], states[-1]))
            for t in reversed(range(first, last)):
                torch.bmm(dy[:, t].unsqueeze(1), states[t - first + 1], out=d_c[:, t : t + 1])
                back.addcmul_(dy[:, t].unsqueeze(-1), c[:, t].unsqueeze(1))
                d_drive[:, t] = torch.bmm(back, b[:, t].unsqueeze(-1)).squeeze(-1)
                torch.bmm(drive[:, t].unsqueeze(1), back, out=d_b[:, t : t + 1])
                back.mul_(decays[t - first])
                slope = back * states[t - first]  # gradient of delta a
                d_delta[:, t] = torch.einsum("bdn,dn->bd", slope, a)
                d_a += torch.einsum("bdn,bd->dn", slope, delta[:, t])
        return d_drive, d_delta, d_a, d_b, d_c, None


def replay(u, delta, a, b, c):
    """Saves only one state every sqrt(L) steps: the least memory in eager PyTorch."""
    return Replay.apply(delta * u, delta, a, b, c, max(1, int(u.shape[1] ** 0.5)))


def stretch_of_walk(h, delta, drive, a, b, c):
    ys = []
    for t in range(delta.shape[1]):
        h = torch.exp(delta[:, t].unsqueeze(-1) * a) * h + drive[:, t].unsqueeze(-1) * b[:, t].unsqueeze(1)
        ys.append((h * c[:, t].unsqueeze(1)).sum(-1))
    return h, torch.stack(ys, 1)


COMPILED = []


def compiled(u, delta, a, b, c, stretch=16):
    """The form `walk`, compiled in pieces of sixteen steps by torch.compile."""
    if not COMPILED:
        COMPILED.append(torch.compile(stretch_of_walk, dynamic=False))
    h, drive, ys = u.new_zeros(u.shape[0], *a.shape), delta * u, []
    for first in range(0, u.shape[1], stretch):
        of = lambda x: x[:, first : first + stretch].contiguous()
        h, y = COMPILED[0](h, of(delta), of(drive), a, of(b), of(c))
        ys.append(y)
    return torch.cat(ys, 1)


def mamba(u, delta, a, b, c):
    """The public CUDA kernel, which expects time as the last axis and rounds in its own way."""
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

    last = [x.mT.contiguous() for x in (u, delta, b, c)]
    return selective_scan_fn(last[0], last[1], a, last[2], last[3]).mT


FORMS = {"loop": loop, "walk": walk, "replay": replay, "compiled": compiled, "mamba": mamba}


def absent(form):
    """Prints the reason if a form is not available here, and returns whether it is missing."""
    if form != "mamba":
        return False
    try:
        from mamba_ssm.ops import selective_scan_interface  # noqa: F401
    except Exception as e:  # a package built for another torch fails in its own ways
        print(json.dumps({"absent": f"mamba_ssm cannot be imported: {e}"}))
        return True
    return False


def settle(device):
    """Selects the full precision of f32, which is torch's default for products but not for convolutions."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.device(device)


def autocast(parser):
    """Adds the flag --autocast, of the precision in which PyTorch trains with bf16."""
    parser.add_argument("--autocast", action="store_true", help="compute the loss under torch.autocast in bf16")


def precision(given):
    """Returns the context of the forward pass."""
    return torch.autocast(given.device.split(":")[0], torch.bfloat16, enabled=given.autocast)


def header(path):
    """Returns the JSON header of a safetensors file, which follows its length, and the data after it."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(size)), file.read()


def run(path):
    """Returns the config of the run whose steps `dsf bench step` has exported."""
    return json.loads(header(path)[0]["__metadata__"]["config"])


def load(path):
    """Returns the tensors of a safetensors file."""
    kinds = {"F32": "<f4", "F64": "<f8", "U32": "<u4", "I64": "<i8"}
    entries, data = header(path)
    tensors = {}
    for name, entry in entries.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            values = numpy.frombuffer(data[first:last], kinds[entry["dtype"]]).reshape(entry["shape"])
            values = torch.from_numpy(values.astype("i8" if entry["dtype"] == "U32" else values.dtype))
            tensors[name] = values.clone()  # where PyTorch aligns it for its vector loads
    return tensors


def timed(work, warm, times, device=torch.device("cpu")):
    """Returns the results of all calls, and wall and CPU seconds of the calls after the first `warm`."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    results, wall, cpu = [], [], []
    for _ in range(warm + times):
        wait()
        start = time.perf_counter(), time.process_time()
        results.append(work())
        wait()
        wall.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
    return results, wall[warm:], cpu[warm:]


def summary(wall, cpu):
    """Returns the report for the driver; its memory is the peak of this process."""
    return {
        "cpu_s_per_step": statistics.median(cpu),
        "cpu_s_min": min(cpu),
        "cpu_s_max": max(cpu),
        "s_per_step": statistics.median(wall),
        "s_min": min(wall),
        "s_max": max(wall),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "torch": torch.__version__,
        "instruction_set": torch.backends.cpu.get_cpu_capability().lower(),
        "threads": torch.get_num_threads(),
    }


def tell(wall, cpu, losses):
    """Prints the report; NaN is written as null, since JSON has no NaN."""
    losses = [x if math.isfinite(x) else None for x in losses]
    print(json.dumps(summary(wall, cpu) | {"losses": losses}, allow_nan=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", required=True, help="inputs, from dsf bench op --export")
    parser.add_argument("--form", choices=FORMS, default="replay")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warm", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    given = parser.parse_args()
    if absent(given.form):
        return
    torch.set_num_threads(given.threads)
    device, tensors = settle(given.device), load(given.load)
    inputs = [tensors[f"input.{i}"].to(device).requires_grad_() for i in range(len(tensors))]

    def both():
        for x in inputs:
            x.grad = None
        y = FORMS[given.form](*inputs)
        y.backward(torch.ones_like(y))
        return y.detach()

    ys, wall, cpu = timed(both, given.warm, given.steps, device)
    sums = [ys[-1].double().abs().sum(), sum(x.grad.double().abs().sum() for x in inputs)]
    tell(wall, cpu, [float(s) for s in sums])


if __name__ == "__main__":
    main()
