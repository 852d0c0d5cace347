"""Single choices held against the kernel's."""
