"""Side-by-side benchmarks: ratios measured in one run, never absolute seconds. Not shipped."""
