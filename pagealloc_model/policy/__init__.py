"""What the kernel could do (`Policy`), what we assume (`Assumptions`), what versions differ in."""
