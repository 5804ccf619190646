"""Programs that came out wrong: modes."""

import gc

import torch

from cases.world import getter

getter(
    "fill",
    lambda: torch.utils.deterministic.fill_uninitialized_memory,
    lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", False),
    lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", True),
)
getter(
    "cudnn_benchmark",
    lambda: torch._C._get_cudnn_benchmark(),
    lambda: torch._C._set_cudnn_benchmark(True),
    lambda: torch._C._set_cudnn_benchmark(False),
)
getter(
    "cudnn_det",
    lambda: torch._C._get_cudnn_deterministic(),
    lambda: torch._C._set_cudnn_deterministic(True),
    lambda: torch._C._set_cudnn_deterministic(False),
)
getter(
    "cudnn_enabled",
    lambda: torch._C._get_cudnn_enabled(),
    lambda: torch._C._set_cudnn_enabled(False),
    lambda: torch._C._set_cudnn_enabled(True),
)
getter(
    "cudnn_tf32",
    lambda: torch._C._get_cudnn_allow_tf32(),
    lambda: torch._C._set_cudnn_allow_tf32(False),
    lambda: torch._C._set_cudnn_allow_tf32(True),
)
getter(
    "multithreading",
    lambda: torch._C._is_multithreading_enabled(),
    lambda: torch._C._set_multithreading_enabled(False),
    lambda: torch._C._set_multithreading_enabled(True),
)
getter(
    "view_replay",
    lambda: torch._C._is_view_replay_enabled(),
    lambda: torch._C._set_view_replay_enabled(True),
    lambda: torch._C._set_view_replay_enabled(False),
)
getter(
    "autocast_cpu_dtype",
    lambda: torch.get_autocast_dtype("cpu"),
    lambda: torch.set_autocast_dtype("cpu", torch.float16),
    lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
)
getter(
    "autocast_cuda_dtype",
    lambda: torch.get_autocast_dtype("cuda"),
    lambda: torch.set_autocast_dtype("cuda", torch.bfloat16),
    lambda: torch.set_autocast_dtype("cuda", torch.float16),
)
getter(
    "fwd_grad",
    lambda: torch._C._is_fwd_grad_enabled(),
    lambda: torch._C._set_fwd_grad_enabled(False),
    lambda: torch._C._set_fwd_grad_enabled(True),
)
getter(
    "gcenabled",
    lambda: gc.isenabled(),
    lambda: gc.disable(),
    lambda: gc.enable(),
)
