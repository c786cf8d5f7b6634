"""Our own kernels for llama.cpp, and what puts them into its sources."""
