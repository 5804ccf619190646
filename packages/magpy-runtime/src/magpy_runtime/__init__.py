"""MagPy's runtime: capture of native runs, and the records that are made of them."""

__version__ = "0.1.0"
