"""The allocator itself: numba kernels over explicit arrays, arrays in and arrays out."""
