"""A recording and its machine: read from files, cut, made anonymous, made anew."""
