#!/usr/bin/env python3
"""Serves one decode and one verify step of Gemma 4 31B from Python and checks the results.

Needs nothing but Python, libattune.so and a driver: device memory comes from libcuda by ctypes.
The device is the argument, else ATTUNE_DEVICE, else GPU 0; "host" needs no GPU and no driver.
Exit code: 0 right, 1 an error or a wrong result, 3 no GPU.
"""

import array
import ctypes
import math
import os
import random
import struct
import sys

import attune_ctypes

# problem, seqlen_q, q heads, KV heads, head_dim, window (0: all), capacity, kv_len
STEPS = (
    ("decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16", 1, 32, 4, 512, 0, 4096, 3000),
    ("verify/b1/q8/kv1-131072/h32x16/d256/w1024/ring/bf16", 8, 32, 16, 256, 1024, 2048, 5000),
)
SM_SCALE = 1.0  # Gemma 4 scales q and k by their norms instead
MAX_ROW_ERROR = 1.6e-2  # largest relative L2 error of one row of head_dim bf16 numbers


class Cuda:
    """The few driver calls needed, on the primary context of one device."""

    def __init__(self, ordinal=0):
        self.c = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        status = getattr(self.c, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name} failed: status={status}")

    def allocate(self, num_bytes):
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(num_bytes, 1)))
        return pointer.value

    def copy_of(self, data):
        pointer = self.allocate(len(data))
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), bytes(data),
                  ctypes.c_size_t(len(data)))
        return pointer

    def download(self, pointer, num_bytes):  # waits for all earlier work
        data = ctypes.create_string_buffer(num_bytes)
        self.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(pointer), ctypes.c_size_t(num_bytes))
        return data.raw

    def free(self, pointer):
        self.call("cuMemFree_v2", ctypes.c_uint64(pointer))


class Host:
    """Memory of this process, as the host device uses it."""

    ALIGNMENT = 256

    def __init__(self):
        self.buffers = {}

    def allocate(self, num_bytes):
        buffer = ctypes.create_string_buffer(num_bytes + self.ALIGNMENT)
        pointer = -(-ctypes.addressof(buffer) // self.ALIGNMENT) * self.ALIGNMENT
        self.buffers[pointer] = buffer
        return pointer

    def copy_of(self, data):
        pointer = self.allocate(len(data))
        ctypes.memmove(pointer, bytes(data), len(data))
        return pointer

    def download(self, pointer, num_bytes):
        return ctypes.string_at(pointer, num_bytes)

    def free(self, pointer):
        del self.buffers[pointer]


def open_memory(device):
    """Memory of the device of this name; None: the first GPU."""
    return Host() if device == "host" else Cuda(int(device or 0))


def noise(count, exponents, seed):
    """`count` bf16 numbers of either sign: random low bytes, high bytes among `exponents`."""
    generator = random.Random(seed)
    table = bytes(exponents[i % len(exponents)] | (i & 0x80) for i in range(256))
    data = bytearray(2 * count)
    data[0::2] = generator.randbytes(count)
    data[1::2] = generator.randbytes(count).translate(table)
    return data


def to_floats(bf16):
    """The numbers of some bf16 bytes."""
    halves = array.array("H", bytes(bf16))
    if sys.byteorder == "big":
        halves.byteswap()
    return struct.unpack(f"{len(halves)}f", array.array("I", (h << 16 for h in halves)).tobytes())


def expected_row(step, q, k, v, token, head):
    """Attention of one query token and head, straight from the formula."""
    _, seqlen_q, num_q_heads, num_kv_heads, head_dim, window, capacity, kv_len = step
    kv_head = head // (num_q_heads // num_kv_heads)
    end = kv_len - seqlen_q + token + 1  # itself is the last key it sees
    begin = max(0, end - window) if window else 0

    def row(data, index):
        return to_floats(memoryview(data)[2 * head_dim * index:2 * head_dim * (index + 1)])

    query = row(q, token * num_q_heads + head)
    slots = [p % capacity * num_kv_heads + kv_head for p in range(begin, end)]
    scores = [SM_SCALE * sum(a * b for a, b in zip(query, row(k, slot))) for slot in slots]
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    out = [0.0] * head_dim
    for weight, slot in zip(weights, slots):
        out = [o + weight * x for o, x in zip(out, row(v, slot))]
    total = sum(weights)
    return [o / total for o in out]


def serve(engine, memory, step):
    """Returns whether the step's result is right."""
    problem, seqlen_q, num_q_heads, num_kv_heads, head_dim, _, capacity, kv_len = step
    attention = engine.prepare(problem)
    print(attention.explain(), end="")

    row_elements = num_kv_heads * head_dim
    q = noise(seqlen_q * num_q_heads * head_dim, (0x3C, 0x3D), seed=1)  # below 1/8
    k = noise(capacity * row_elements, (0x3D, 0x3E, 0x3F), seed=2)  # below 2
    v = noise(capacity * row_elements, (0x3D, 0x3E, 0x3F), seed=3)
    for data in (k, v):  # what lies beyond kv_len is never used, whatever it holds
        unused = capacity - min(kv_len, capacity)
        data[len(data) - 2 * unused * row_elements:] = b"\xc0\x7f" * (unused * row_elements)

    pointers = {"q": memory.copy_of(q), "k": memory.copy_of(k), "v": memory.copy_of(v),
                "out": memory.allocate(len(q)), "kv_len": memory.copy_of(struct.pack("i", kv_len)),
                "workspace": memory.allocate(attention.workspace_bytes())}
    attention.launch(stream=None, capacity=capacity, sm_scale=SM_SCALE, **pointers)
    out = to_floats(memory.download(pointers["out"], len(q)))
    for pointer in pointers.values():
        memory.free(pointer)

    worst = 0.0
    for token, head in ((0, 0), (seqlen_q // 2, num_q_heads // 2), (seqlen_q - 1, num_q_heads - 1)):
        expected = expected_row(step, q, k, v, token, head)
        begin = (token * num_q_heads + head) * head_dim
        got = out[begin:begin + head_dim]
        error = math.sqrt(sum((a - b) ** 2 for a, b in zip(got, expected)) /
                          sum(b * b for b in expected))
        if not error <= worst:  # keeps a NaN
            worst = error
    right = worst <= MAX_ROW_ERROR
    print(f"result     {'right' if right else 'WRONG'}: largest relative error of a row "
          f"{worst:.2e}, limit {MAX_ROW_ERROR:.2e}\n")
    return right


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ATTUNE_DEVICE") or None
    try:
        library = attune_ctypes.Library()
        engine = attune_ctypes.Engine(library, strict=True, device=device,
                                      log=lambda text: print("attune:", text, file=sys.stderr))
        memory = open_memory(device)
        return 0 if all([serve(engine, memory, step) for step in STEPS]) else 1
    except attune_ctypes.AttuneError as error:
        print(error, file=sys.stderr)
        return 3 if error.status == attune_ctypes.NO_DEVICE else 1
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
