"""Programs that came out wrong: modes."""

import gc

import torch

from cases.world import getter

getter(
    "fill",
    lambda: torch.utils.deterministic.fill_uninitialized_memory,
    lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", False),
    lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", True),
    found="torch's getter is taken for guarded and is not",
)
getter(
    "cudnn_benchmark",
    lambda: torch._C._get_cudnn_benchmark(),
    lambda: torch._C._set_cudnn_benchmark(True),
    lambda: torch._C._set_cudnn_benchmark(False),
    found="torch's getter is taken for guarded and is not",
)
getter(
    "cudnn_det",
    lambda: torch._C._get_cudnn_deterministic(),
    lambda: torch._C._set_cudnn_deterministic(True),
    lambda: torch._C._set_cudnn_deterministic(False),
    found="torch's getter is taken for guarded and is not",
)
getter(
    "cudnn_enabled",
    lambda: torch._C._get_cudnn_enabled(),
    lambda: torch._C._set_cudnn_enabled(False),
    lambda: torch._C._set_cudnn_enabled(True),
    found="torch's getter is taken for guarded and is not",
)
getter(
    "cudnn_tf32",
    lambda: torch._C._get_cudnn_allow_tf32(),
    lambda: torch._C._set_cudnn_allow_tf32(False),
    lambda: torch._C._set_cudnn_allow_tf32(True),
    found="torch's getter is taken for guarded and is not",
)
getter(
    "multithreading",
    lambda: torch._C._is_multithreading_enabled(),
    lambda: torch._C._set_multithreading_enabled(False),
    lambda: torch._C._set_multithreading_enabled(True),
    found="torch's getter is taken for guarded and is not",
)
getter(
    "view_replay",
    lambda: torch._C._is_view_replay_enabled(),
    lambda: torch._C._set_view_replay_enabled(True),
    lambda: torch._C._set_view_replay_enabled(False),
    found="torch's getter is taken for guarded and is not",
)
getter(
    "autocast_cpu_dtype",
    lambda: torch.get_autocast_dtype("cpu"),
    lambda: torch.set_autocast_dtype("cpu", torch.float16),
    lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
    found="torch's getter is taken for guarded and is not",
)
getter(
    "autocast_cuda_dtype",
    lambda: torch.get_autocast_dtype("cuda"),
    lambda: torch.set_autocast_dtype("cuda", torch.bfloat16),
    lambda: torch.set_autocast_dtype("cuda", torch.float16),
    found="torch's getter is taken for guarded and is not",
)
getter(
    "fwd_grad",
    lambda: torch._C._is_fwd_grad_enabled(),
    lambda: torch._C._set_fwd_grad_enabled(False),
    lambda: torch._C._set_fwd_grad_enabled(True),
    found="torch's getter is taken for guarded and is not",
)
getter(
    "gcenabled",
    lambda: gc.isenabled(),
    lambda: gc.disable(),
    lambda: gc.enable(),
    found="collection of garbage is off inside of a monitored run, and the program can see it",
)
