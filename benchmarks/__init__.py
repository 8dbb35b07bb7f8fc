"""Side-by-side benchmarks: `python -m benchmarks [--small] [--only NAME] [--repeat N]`; see docs/benchmarks.md."""
