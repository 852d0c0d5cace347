"""Single choices of the kernel, judged from the true state before each."""
