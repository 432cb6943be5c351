"""Wrong attention in NumPy: one module a kind of fault. Shares nothing with the library; tools/inject_faults.py makes cases of it."""
