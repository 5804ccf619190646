"""What is measured: one module for each section of the report, with `measure(settings) -> dict` and `show(dict) -> str`."""
