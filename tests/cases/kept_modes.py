"""Programs that come out right: modes."""

import decimal
import logging
import os
import sys
import warnings

import numpy as np
import torch

from cases.world import CV, TL, X, add, getter, p0

getter(
    "matmul",
    torch.get_float32_matmul_precision,
    lambda: torch.set_float32_matmul_precision("high"),
    lambda: torch.set_float32_matmul_precision(p0),
)
getter(
    "anomaly",
    torch.is_anomaly_enabled,
    lambda: torch.autograd.set_detect_anomaly(True),
    lambda: torch.autograd.set_detect_anomaly(False),
)
getter(
    "tf32",
    lambda: torch._C._get_cublas_allow_tf32(),
    lambda: torch._C._set_cublas_allow_tf32(True),
    lambda: torch._C._set_cublas_allow_tf32(False),
)
getter(
    "det_warn",
    torch.is_deterministic_algorithms_warn_only_enabled,
    lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    lambda: torch.use_deterministic_algorithms(False),
)
getter(
    "autocast_cache",
    torch.is_autocast_cache_enabled,
    lambda: torch.set_autocast_cache_enabled(False),
    lambda: torch.set_autocast_cache_enabled(True),
)
getter("threads", torch.get_num_threads, lambda: torch.set_num_threads(3), lambda: torch.set_num_threads(2))
getter("rng", lambda: torch.initial_seed(), lambda: torch.manual_seed(77), lambda: None)
getter("rngstate", lambda: torch.get_rng_state().sum().item(), lambda: torch.manual_seed(77), lambda: None)
getter("nprandom", lambda: float(np.random.rand()) * 0, lambda: np.random.seed(3), lambda: None)
getter("environ", lambda: os.environ.get("QQ"), lambda: os.environ.__setitem__("QQ", "1"), lambda: os.environ.pop("QQ"))
getter(
    "printopts",
    lambda: torch._tensor_str.PRINT_OPTS.precision,
    lambda: torch.set_printoptions(precision=2),
    lambda: torch.set_printoptions(precision=4),
)


def recursion_limit(c):
    before = sys.getrecursionlimit()  # other tests and libraries raise it
    f = c(lambda x: (x * 2, sys.getrecursionlimit()))
    try:
        for limit in (1000, 1000, 2000, 1000):
            sys.setrecursionlimit(limit)
            yield f(X())
    finally:
        sys.setrecursionlimit(before)


add("mode_reclimit", recursion_limit, None)
getter(
    "loglevel",
    lambda: logging.getLogger("q").isEnabledFor(10),
    lambda: logging.getLogger("q").setLevel(5),
    lambda: logging.getLogger("q").setLevel(50),
)
getter(
    "decimal",
    lambda: decimal.getcontext().prec,
    lambda: setattr(decimal.getcontext(), "prec", 5),
    lambda: setattr(decimal.getcontext(), "prec", 28),
)
getter("contextvar", lambda: CV.get(), lambda: CV.set(4), lambda: CV.set(1))
getter("threadlocal", lambda: TL.v, lambda: setattr(TL, "v", 2), lambda: setattr(TL, "v", 1))
getter(
    "warnfilters",
    lambda: len(warnings.filters),
    lambda: warnings.simplefilter("ignore", ResourceWarning),
    lambda: warnings.filters.pop(0),
)
