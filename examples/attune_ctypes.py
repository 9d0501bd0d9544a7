"""The C ABI of attune (runtime/attune_c.h) for Python, by ctypes alone.

    library = Library()                      # finds libattune.so
    engine = Engine(library)
    decode = engine.prepare("decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16")
    decode.launch(stream=0, q=..., k=..., v=..., out=..., kv_len=..., workspace=..., capacity=8192)

Device pointers are integers, as torch.Tensor.data_ptr() gives them; a stream is one too.
"""

import ctypes
import os
import pathlib

OK = 0
INVALID_ARGUMENT = 2
NO_DEVICE = 3
NOT_PREPARED = 7

SERVED = ("exact", "nearest", "default")
ON_MISS = {"default": 0, "tune": 1, "error": 2}

LogFunction = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
Strides = ctypes.c_int64 * 3


class Options(ctypes.Structure):
    """attune_options"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("device_ordinal", ctypes.c_int32),
        ("on_miss", ctypes.c_int32),
        ("strict", ctypes.c_int32),
        ("tune_budget_s", ctypes.c_double),
        ("cache_path", ctypes.c_char_p),
        ("nvrtc_path", ctypes.c_char_p),
        ("worker_path", ctypes.c_char_p),
        ("log", LogFunction),
        ("log_context", ctypes.c_void_p),
        ("device", ctypes.c_char_p),
        ("disabled_families", ctypes.c_char_p),
        ("tune_worker_path", ctypes.c_char_p),
        ("measure_worker_path", ctypes.c_char_p),
        ("cache_bases", ctypes.c_char_p),
        ("cache_max_size", ctypes.c_char_p),
        ("gpu_alias", ctypes.c_char_p),
        ("cublaslt_path", ctypes.c_char_p),
    ]


class Args(ctypes.Structure):
    """attune_args"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("q", ctypes.c_uint64),
        ("k", ctypes.c_uint64),
        ("v", ctypes.c_uint64),
        ("out", ctypes.c_uint64),
        ("lse", ctypes.c_uint64),
        ("kv_len", ctypes.c_uint64),
        ("workspace", ctypes.c_uint64),
        ("capacity", ctypes.c_int64),
        ("q_strides", Strides),
        ("k_strides", Strides),
        ("v_strides", Strides),
        ("out_strides", Strides),
        ("sm_scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
    ]


class AttuneError(Exception):
    """A call failed; `status` is an attune_status."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def find_library():
    """ATTUNE_LIBRARY, a bundle or build folder around this file, or the loader's path."""
    given = os.environ.get("ATTUNE_LIBRARY")
    if given:
        return given
    root = pathlib.Path(__file__).resolve().parent.parent
    found = [path for folder in ("lib", "build/*/lib", "build/lib")
             for path in sorted(root.glob(folder + "/libattune.so"))]
    return str(found[0]) if found else "libattune.so"


class Library:
    """The loaded libattune.so."""

    def __init__(self, path=None):
        self.c = ctypes.CDLL(path or find_library())
        handle, size = ctypes.c_void_p, ctypes.c_size_t
        text_call = [handle, ctypes.c_char_p, size, ctypes.POINTER(size)]
        signatures = {
            "attune_engine_create": [ctypes.POINTER(Options), ctypes.POINTER(handle)],
            "attune_engine_seal": [handle],
            "attune_engine_prepare": [handle, ctypes.c_char_p, ctypes.POINTER(handle)],
            "attune_engine_choices_digest": text_call,
            "attune_attention_workspace_bytes": [handle, ctypes.POINTER(size)],
            "attune_attention_served": [handle, ctypes.POINTER(ctypes.c_int)],
            "attune_attention_launch": [handle, ctypes.POINTER(Args), handle],
            "attune_attention_explain": text_call,
        }
        for name, types in signatures.items():
            function = getattr(self.c, name)
            function.restype = ctypes.c_int
            function.argtypes = types
        for name in ("attune_engine_destroy", "attune_attention_destroy"):
            function = getattr(self.c, name)
            function.restype = None
            function.argtypes = [handle]
        for name in ("attune_version", "attune_last_error"):
            getattr(self.c, name).restype = ctypes.c_char_p
        self.c.attune_status_name.restype = ctypes.c_char_p
        self.c.attune_status_name.argtypes = [ctypes.c_int]

    def version(self):
        return self.c.attune_version().decode()

    def call(self, name, *arguments):
        status = getattr(self.c, name)(*arguments)
        if status != OK:
            raise AttuneError(status, self.c.attune_last_error().decode())

    def text(self, name, handle):
        needed = ctypes.c_size_t()
        self.call(name, handle, None, 0, ctypes.byref(needed))
        buffer = ctypes.create_string_buffer(needed.value)
        self.call(name, handle, buffer, needed.value, None)
        return buffer.value.decode()


class Engine:
    """attune_engine. `log` gets every warning as a str; `device` is "0", "host", ... instead of
    `device_ordinal`; `cache_bases` is a list of paths, `cache_max_size` is "500M" or "2G". What is
    None the environment decides."""

    def __init__(self, library, device_ordinal=0, on_miss="default", strict=False, cache_path=None,
                 nvrtc_path=None, tune_budget_s=0, log=None, device=None, cache_bases=None,
                 cache_max_size=None, gpu_alias=None, cublaslt_path=None):
        self.library = library
        self.handle = None
        # Kept by the object: the library calls it as long as the engine lives.
        self.log = LogFunction(lambda text, _: log(text.decode())) if log else LogFunction()
        options = Options(struct_size=ctypes.sizeof(Options), device_ordinal=device_ordinal,
                          on_miss=ON_MISS[on_miss], strict=strict, tune_budget_s=tune_budget_s,
                          cache_path=cache_path and os.fsencode(cache_path),
                          nvrtc_path=nvrtc_path and os.fsencode(nvrtc_path), log=self.log,
                          device=device and device.encode(),
                          cache_bases=(None if cache_bases is None
                                       else b":".join(map(os.fsencode, cache_bases))),
                          cache_max_size=cache_max_size and cache_max_size.encode(),
                          gpu_alias=None if gpu_alias is None else gpu_alias.encode(),
                          cublaslt_path=cublaslt_path and os.fsencode(cublaslt_path))
        handle = ctypes.c_void_p()
        library.call("attune_engine_create", ctypes.byref(options), ctypes.byref(handle))
        self.handle = handle

    def __del__(self):
        if self.handle:
            self.library.c.attune_engine_destroy(self.handle)

    def prepare(self, problem):
        handle = ctypes.c_void_p()
        self.library.call("attune_engine_prepare", self.handle, problem.encode(),
                          ctypes.byref(handle))
        return Attention(self.library, handle)

    def seal(self):
        self.library.call("attune_engine_seal", self.handle)

    def choices_digest(self):
        return self.library.text("attune_engine_choices_digest", self.handle)


class Attention:
    """attune_attention."""

    def __init__(self, library, handle):
        self.library = library
        self.handle = handle

    def __del__(self):
        self.library.c.attune_attention_destroy(self.handle)

    def workspace_bytes(self):
        size = ctypes.c_size_t()
        self.library.call("attune_attention_workspace_bytes", self.handle, ctypes.byref(size))
        return size.value

    def served(self):
        served = ctypes.c_int()
        self.library.call("attune_attention_served", self.handle, ctypes.byref(served))
        return SERVED[served.value]

    def explain(self):
        return self.library.text("attune_attention_explain", self.handle)

    def launch(self, stream=0, sm_scale=1.0, **fields):
        """`fields` are those of attune_args; strides are tuples of three."""
        for name, value in fields.items():
            if name.endswith("_strides"):
                fields[name] = Strides(*value)
        args = Args(struct_size=ctypes.sizeof(Args), sm_scale=sm_scale, **fields)
        self.library.call("attune_attention_launch", self.handle, ctypes.byref(args), stream)
