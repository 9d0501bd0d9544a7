"""The C ABI of a Gemma 4 model's attention (runtime/attune_gemma4_c.h) for Python, by ctypes alone.

    engine = attune_ctypes.Engine(attune_ctypes.Library())
    model = Model(engine, Geometry(engine.library, path="config.json"), max_tokens=32768)
    for layer, shape in enumerate(model.geometry.layers):
        model.set_norm_weights(layer, q_norm, k_norm)  # bytes of bf16
    session = model.open_session()
    for layer in range(len(model.geometry.layers)):
        session.prefill(layer, 300, stream, q=..., k=..., v=..., out=...)
    session.commit(300, stream)

Device pointers are integers, as torch.Tensor.data_ptr() gives them; a stream is one too.
"""

import ctypes
import os

SLIDING, GLOBAL = 0, 1
LAYOUTS = {"contiguous": 0, "paged": 1, "unified": 2, "unified-paged": 3}


class Info(ctypes.Structure):
    """attune_gemma4_info"""

    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_int32)
        for name in ("num_layers", "hidden_size", "max_positions", "reserved")
    ] + [("rms_norm_eps", ctypes.c_double)]


class Layer(ctypes.Structure):
    """attune_gemma4_layer"""

    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_int32)
        for name in ("kind", "num_q_heads", "num_kv_heads", "head_dim", "window", "k_eq_v",
                     "kv_layer", "rope_num_pairs")
    ] + [("rope_theta", ctypes.c_double), ("rope_factor", ctypes.c_double)]


class Options(ctypes.Structure):
    """attune_gemma4_options"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("max_tokens", ctypes.c_int32),
        ("max_sequences", ctypes.c_int32),
        ("max_prefill", ctypes.c_int32),
        ("max_verify", ctypes.c_int32),
        ("batch_sizes", ctypes.POINTER(ctypes.c_int32)),
        ("num_batch_sizes", ctypes.c_size_t),
        ("global_layout", ctypes.c_int32),
        ("page_size", ctypes.c_int32),
        ("num_pages", ctypes.c_int32),
        ("invariant", ctypes.c_int32),
    ]


class Args(ctypes.Structure):
    """attune_gemma4_args"""

    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint64) for name in ("q", "k", "v", "out", "lse")
    ] + [(name + "_token_stride", ctypes.c_int64) for name in ("q", "k", "v", "out")]


def _sized(kind, **fields):
    return kind(struct_size=ctypes.sizeof(kind), **fields)


def _args(fields):
    return ctypes.byref(_sized(Args, **fields))


_HANDLE, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t
_OUT_HANDLE, _OUT_INT, _OUT_SIZE = map(ctypes.POINTER, (_HANDLE, _INT, _SIZE))
_STEPS = {  # of sessions and of batches
    "prefill": [_HANDLE, _INT, _INT, ctypes.POINTER(Args), _HANDLE],
    "decode": [_HANDLE, _INT, ctypes.POINTER(Args), _HANDLE],
    "verify": [_HANDLE, _INT, _INT, ctypes.POINTER(Args), _HANDLE],
    "begin_step": [_HANDLE, _INT, _HANDLE],
    "largest_step": [_HANDLE, _OUT_INT],
}
_SIGNATURES = {
    "geometry_from_file": [ctypes.c_char_p, _OUT_HANDLE],
    "geometry_from_json": [ctypes.c_char_p, _OUT_HANDLE],
    "geometry_info": [_HANDLE, ctypes.POINTER(Info)],
    "geometry_layer": [_HANDLE, _INT, ctypes.POINTER(Layer)],
    "model_create": [_HANDLE, _HANDLE, ctypes.POINTER(Options), _OUT_HANDLE],
    "model_set_norm_weights": [_HANDLE, _INT, ctypes.c_char_p, _SIZE, ctypes.c_char_p, _SIZE],
    "model_cache_bytes": [_HANDLE, _OUT_SIZE],
    "model_workspace_bytes": [_HANDLE, _OUT_SIZE],
    "model_free_pages": [_HANDLE, _OUT_INT],
    "model_explain": [_HANDLE, ctypes.c_char_p, _SIZE, _OUT_SIZE],
    "session_open": [_HANDLE, _OUT_HANDLE],
    "session_commit": [_HANDLE, _INT, _HANDLE],
    "session_rollback": [_HANDLE, _INT, _HANDLE],
    "session_reserve": [_HANDLE, _INT, _HANDLE],
    "session_length": [_HANDLE, _OUT_INT],
    "session_cache_bytes": [_HANDLE, _OUT_SIZE],
    "batch_create": [_HANDLE, _INT, _OUT_HANDLE],
    "batch_assign": [_HANDLE, _OUT_HANDLE, _SIZE, _HANDLE],
    "batch_commit": [_HANDLE, _OUT_INT, _SIZE, _HANDLE],
    "batch_workspace_bytes": [_HANDLE, _OUT_SIZE],
    **{f"{owner}_{name}": types
       for owner in ("session", "batch") for name, types in _STEPS.items()},
}


class _Object:
    """A handle of the library; `destroy` is the function that ends it."""

    def __init__(self, library, destroy, create, *arguments):
        self.handle = None
        self.library = library
        self.destroy = getattr(library.c, "attune_gemma4_" + destroy)
        self.destroy.restype = None
        self.destroy.argtypes = [_HANDLE]
        handle = _HANDLE()
        self.call(create, *arguments, ctypes.byref(handle), on_self=False)
        self.handle = handle

    def __del__(self):
        if self.handle:
            self.destroy(self.handle)

    def call(self, name, *arguments, on_self=True):
        function = getattr(self.library.c, "attune_gemma4_" + name)
        function.restype = ctypes.c_int
        function.argtypes = _SIGNATURES[name]
        self.library.call("attune_gemma4_" + name, *((self.handle,) if on_self else ()), *arguments)

    def number(self, name, kind=_SIZE):
        value = kind()
        self.call(name, ctypes.byref(value))
        return value.value


class Geometry(_Object):
    """attune_gemma4_geometry of a file or folder `path`, or of the text of a config.json; `info`
    and `layers` are its numbers."""

    def __init__(self, library, path=None, text=None):
        if path is not None:
            super().__init__(library, "geometry_destroy", "geometry_from_file", os.fsencode(path))
        else:
            super().__init__(library, "geometry_destroy", "geometry_from_json", text.encode())
        self.info = _sized(Info)
        self.call("geometry_info", ctypes.byref(self.info))
        self.layers = [_sized(Layer) for _ in range(self.info.num_layers)]
        for index, layer in enumerate(self.layers):
            self.call("geometry_layer", index, ctypes.byref(layer))


class Model(_Object):
    """attune_gemma4_model. `options` are the fields of attune_gemma4_options."""

    def __init__(self, engine, geometry, batch_sizes=(), global_layout="contiguous", **options):
        self.geometry = geometry
        sizes = (_INT * len(batch_sizes))(*batch_sizes)
        given = _sized(Options, batch_sizes=sizes, num_batch_sizes=len(sizes),
                       global_layout=LAYOUTS[global_layout], **options)
        super().__init__(engine.library, "model_destroy", "model_create", engine.handle,
                         geometry.handle, ctypes.byref(given))

    def set_norm_weights(self, layer, q_norm, k_norm=b""):
        """bf16 as bytes; `k_norm` is empty for layers that read another layer's cache."""
        self.call("model_set_norm_weights", layer, bytes(q_norm), len(q_norm) // 2, bytes(k_norm),
                  len(k_norm) // 2)

    def cache_bytes(self):
        return self.number("model_cache_bytes")

    def free_pages(self):
        return self.number("model_free_pages", _INT)

    def explain(self):
        return self.library.text("attune_gemma4_model_explain", self.handle)

    def open_session(self):
        return Session(self)

    def make_batch(self, size):
        return Batch(self, size)


class _Stepping(_Object):
    owner = ""

    def prefill(self, layer, num_tokens, stream=None, **args):
        """`args` are the fields of attune_gemma4_args."""
        self.call(self.owner + "_prefill", layer, num_tokens, _args(args), stream)

    def decode(self, layer, stream=None, **args):
        self.call(self.owner + "_decode", layer, _args(args), stream)

    def verify(self, layer, num_tokens, stream=None, **args):
        self.call(self.owner + "_verify", layer, num_tokens, _args(args), stream)

    def begin_step(self, num_tokens, stream=None):
        self.call(self.owner + "_begin_step", num_tokens, stream)

    def largest_step(self):
        return self.number(self.owner + "_largest_step", _INT)


class Session(_Stepping):
    """attune_gemma4_session"""

    owner = "session"

    def __init__(self, model):
        super().__init__(model.library, "session_close", "session_open", model.handle)

    def commit(self, num_tokens, stream=None):
        self.call("session_commit", num_tokens, stream)

    def rollback(self, num_tokens, stream=None):
        self.call("session_rollback", num_tokens, stream)

    def reserve(self, num_tokens, stream=None):
        self.call("session_reserve", num_tokens, stream)

    def length(self):
        return self.number("session_length", _INT)

    def cache_bytes(self):
        return self.number("session_cache_bytes")


class Batch(_Stepping):
    """attune_gemma4_batch"""

    owner = "batch"

    def __init__(self, model, size):
        super().__init__(model.library, "batch_destroy", "batch_create", model.handle, size)

    def assign(self, sessions, stream=None):
        handles = (_HANDLE * len(sessions))(*(session.handle for session in sessions))
        self.call("batch_assign", handles, len(handles), stream)

    def commit(self, num_tokens, stream=None):
        counts = (_INT * len(num_tokens))(*num_tokens)
        self.call("batch_commit", counts, len(counts), stream)
