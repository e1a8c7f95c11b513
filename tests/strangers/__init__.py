"""Programs of strangers: they use the public API alone, and each tries to break one promise."""
