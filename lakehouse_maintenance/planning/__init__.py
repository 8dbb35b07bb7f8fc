"""Pure decisions: what is worth doing, and why. No I/O happens here, and the clock is a value that callers pass in."""
