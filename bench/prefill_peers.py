#!/usr/bin/env python3
"""Times attune's prefill attention beside other libraries on the shapes of bench/tables/prefill-*.yaml: prefill_peers.py [--csv FILE].

Peers: attune (its libattune.so, or the one that ATTUNE_LIBRARY names, and the tuning cache), cuDNN and FlashAttention 2 as PyTorch
has them, FlexAttention, and the Triton kernel of executorch. All are timed in the same way in one process. A row of the CSV is a
shape and a peer; one that is missing, or refuses the shape, has a row that says why. TFLOP/s count the products of keys that a
query sees, and no others. The matrix product's rate stands in front: a GPU that is held back by power has another one each time.
Needs a GPU and PyTorch; --list shows the shapes and needs neither.
"""

import argparse
import csv
import dataclasses
import math
import pathlib
import statistics
import sys

FIELDS = ["shape", "peer", "version", "time_us", "spread_us", "tflops", "max_error", "note"]
CHECKED_TOKENS = 16  # query tokens of each shape that are compared with the formula in fp32
FLUSH_BYTES = 2 << 30
MOST_ERROR = 0.05  # of outputs of about 1, in bf16
CEILING_SIDE = 8192
RING_ROWS = 128  # rows of attune's rings are a multiple


@dataclasses.dataclass(frozen=True)
class Shape:
    """A chunk of `tokens` behind `prefix` tokens; each query sees the last `window` keys, or all."""

    q_heads: int
    kv_heads: int
    head_dim: int
    tokens: int
    prefix: int = 0
    window: int = 0

    def name(self):
        window = f"/w{self.window}" if self.window else ""
        return (f"prefill/b1/q{self.tokens}/kv{self.tokens + self.prefix}/h{self.q_heads}x{self.kv_heads}/d{self.head_dim}"
                f"{window}")

    def keys_of(self, token):
        """The keys [first, end) that a query token sees."""
        end = self.prefix + token + 1
        return (max(0, end - self.window) if self.window else 0), end

    def flops(self):
        pairs = sum(end - first for first, end in map(self.keys_of, range(self.tokens)))
        return 4.0 * pairs * self.q_heads * self.head_dim


SHAPES = (
    [Shape(32, 4, 512, tokens) for tokens in (2048, 8192, 16384)]
    + [Shape(32, 4, 512, 2048, prefix) for prefix in (32768, 131072)]
    + [Shape(32, 16, 256, tokens) for tokens in (2048, 8192, 16384)]
    + [Shape(32, 16, 256, 2048, 32768)]
    + [Shape(32, 16, 256, tokens, 0, 1024) for tokens in (2048, 8192, 16384)]
    + [Shape(32, 16, 256, 2048, 32768, 1024)]
)


class Refused(Exception):
    """A peer that is not there, or does not compute a shape."""


def attune_peer(torch, shape, q, k, v):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
    try:
        import attune_ctypes
        library = attune_ctypes.Library()
    except (ImportError, OSError) as error:
        raise Refused(f"libattune.so could not be loaded: {error}; set ATTUNE_LIBRARY") from error
    q, k, v = (x[0].transpose(0, 1).contiguous() for x in (q, k, v))  # [tokens, heads, head_dim], as its caches are
    num_keys = k.shape[0]
    if shape.window:  # a ring that has not come to its end yet
        least = shape.window + shape.tokens - 1
        rows = -(-max(num_keys, least) // RING_ROWS) * RING_ROWS
        k, v = (torch.nn.functional.pad(x, (0, 0, 0, 0, 0, rows - num_keys)) for x in (k, v))
    out = torch.empty_like(q)
    kv_len = torch.tensor([num_keys], device="cuda", dtype=torch.int32)
    attention = attune_ctypes.Engine(library).prepare(f"{shape.name()}/{'ring' if shape.window else 'contiguous'}/bf16")
    workspace = torch.empty(max(1, attention.workspace_bytes()), device="cuda", dtype=torch.uint8)

    def run():
        attention.launch(torch.cuda.current_stream().cuda_stream, q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(),
                         out=out.data_ptr(), kv_len=kv_len.data_ptr(), workspace=workspace.data_ptr(),
                         capacity=k.shape[0], sm_scale=1 / math.sqrt(shape.head_dim))
        return out.transpose(0, 1).unsqueeze(0)

    return run, f"attune {library.version()}, {attention.served()}"


def cudnn_peer(torch, shape, q, k, v):
    """q, k, v [1, heads, tokens, head_dim]"""
    if shape.window:
        raise Refused("no windows in scaled_dot_product_attention")
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right

    bias = causal_lower_right(shape.tokens, shape.tokens + shape.prefix) if shape.prefix else None

    def run():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=bias, is_causal=bias is None, enable_gqa=True)

    return run, f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"


def flash_peer(torch, shape, q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    left = shape.window - 1 if shape.window else None

    def run():
        out = torch.ops.aten._flash_attention_forward(
            q, k, v, None, None, q.shape[1], k.shape[1], 0.0, True, False, window_size_left=left,
            window_size_right=0 if shape.window else None)[0]
        return out.transpose(1, 2)

    return run, f"torch {torch.__version__}, FlashAttention 2"


def flex_peer(torch, shape, q, k, v):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def sees(_, __, query, key):
        position = query + shape.prefix
        seen = key <= position
        return seen & (key > position - shape.window) if shape.window else seen

    mask = create_block_mask(sees, None, None, shape.tokens, shape.tokens + shape.prefix, device="cuda")
    compiled = torch.compile(flex_attention, dynamic=False)
    # Of its own blocks none has room at head_dim 512.
    blocks = {"BLOCK_M": 64, "BLOCK_N": 32, "num_stages": 1, "num_warps": 8} if shape.head_dim > 256 else None
    return (lambda: compiled(q, k, v, block_mask=mask, enable_gqa=True, kernel_options=blocks),
            f"torch {torch.__version__}, FlexAttention")


def triton_peer(torch, shape, q, k, v):
    try:
        from executorch.backends.cuda.triton.kernels import sdpa
    except ImportError as error:
        raise Refused(f"executorch is not installed: {error}") from error
    if shape.prefix:
        raise Refused("causal from the first key alone")
    if shape.window:
        raise Refused("no windows but as a mask")
    return lambda: sdpa(q, k, v, is_causal=True, enable_gqa=True), "executorch"


PEERS = {"attune": attune_peer, "cudnn": cudnn_peer, "flash2": flash_peer, "flex": flex_peer, "triton": triton_peer}


def max_error(torch, shape, q, k, v, out):
    """The largest difference from the formula in fp32 at some query tokens, the first and the last among them."""
    group = shape.q_heads // shape.kv_heads
    worst = 0.0
    for i in range(CHECKED_TOKENS):
        token = i * (shape.tokens - 1) // (CHECKED_TOKENS - 1)
        first, end = shape.keys_of(token)
        keys = k[0, :, first:end].float().repeat_interleave(group, 0)
        values = v[0, :, first:end].float().repeat_interleave(group, 0)
        scores = torch.einsum("hd,hkd->hk", q[0, :, token].float(), keys) / math.sqrt(shape.head_dim)
        expected = torch.einsum("hk,hkd->hd", scores.softmax(-1), values)
        worst = max(worst, (out[0, :, token].float() - expected).abs().max().item())
    return worst


def time_us(torch, run, rounds):
    """Median and half the interquartile range of single launches, in microseconds. In front of each, memory is written
    that is larger than any L2: K and V are cold, as in attune's own times, and the launch is in the queue before the GPU is at it."""
    flush = torch.empty(FLUSH_BYTES, device="cuda", dtype=torch.uint8)
    for _ in range(3):
        run()
    times = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flush.zero_()
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    quartiles = statistics.quantiles(times, n=4)
    return statistics.median(times), (quartiles[2] - quartiles[0]) / 2


def ceiling_row(torch, rounds):
    a = torch.randn(CEILING_SIDE, CEILING_SIDE, device="cuda", dtype=torch.bfloat16)
    median, spread = time_us(torch, lambda: a @ a, rounds)
    return {"shape": f"{CEILING_SIDE}^3", "peer": "matmul", "version": f"torch {torch.__version__}", "time_us": f"{median:.1f}",
            "spread_us": f"{spread:.1f}", "tflops": f"{2 * CEILING_SIDE**3 / median * 1e-6:.1f}",
            "note": torch.cuda.get_device_name()}


def peer_row(torch, shape, name, rounds):
    row = {"shape": shape.name(), "peer": name}
    torch.manual_seed(1)

    def noise(heads, tokens):
        return torch.randn(1, heads, tokens, shape.head_dim, device="cuda", dtype=torch.bfloat16)

    q = noise(shape.q_heads, shape.tokens)
    k, v = (noise(shape.kv_heads, shape.tokens + shape.prefix) for _ in range(2))
    try:
        run, row["version"] = PEERS[name](torch, shape, q, k, v)
        error = max_error(torch, shape, q, k, v, run())
        row["max_error"] = f"{error:.1e}"
        if not error <= MOST_ERROR:
            raise Refused(f"wrong: off by {error:.1e}, more than {MOST_ERROR}")
        median, spread = time_us(torch, run, rounds)
    except Exception as error:  # a library refuses a shape by whatever it throws: the row says so
        row["note"] = "refused: " + " ".join(str(error).split())[:200]
        return row
    finally:
        torch.cuda.empty_cache()
    row.update(time_us=f"{median:.1f}", spread_us=f"{spread:.1f}", tflops=f"{shape.flops() / median * 1e-6:.1f}")
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", help="write the CSV there instead of to stdout")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"some of {','.join(PEERS)} (default: all)")
    parser.add_argument("--only", default="", help="shapes whose name has this in it, such as d512")
    parser.add_argument("--rounds", type=int, default=20, help="launches that are timed (default 20)")
    parser.add_argument("--list", action="store_true", help="print the shapes and their FLOPs")
    args = parser.parse_args()
    peers = args.peers.split(",")
    unknown = [name for name in peers if name not in PEERS]
    if unknown:
        parser.error(f"unknown peers: {','.join(unknown)}; known are {','.join(PEERS)}")
    if args.rounds < 2:
        parser.error(f"--rounds {args.rounds}: a spread takes 2 at least")
    shapes = [shape for shape in SHAPES if args.only in shape.name()]
    if not shapes:
        parser.error(f"--only {args.only}: no such shape; see --list")
    if args.list:
        for shape in shapes:
            print(f"{shape.name()} {shape.flops() * 1e-12:.3f} TFLOP")
        return 0
    try:
        import torch
    except ImportError as error:
        print(f"prefill_peers.py: PyTorch is not installed: {error}; install torch", file=sys.stderr)
        return 1
    if not torch.cuda.is_available():
        print("prefill_peers.py: PyTorch finds no GPU; run it on a machine with one", file=sys.stderr)
        return 3

    stream = open(args.csv, "w", newline="", encoding="utf-8") if args.csv else sys.stdout
    with stream:
        writer = csv.DictWriter(stream, FIELDS, restval="")
        writer.writeheader()
        writer.writerow(ceiling_row(torch, args.rounds))
        for shape in shapes:
            for name in peers:
                print(f"{shape.name()} {name}", file=sys.stderr)
                writer.writerow(peer_row(torch, shape, name, args.rounds))
                stream.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
