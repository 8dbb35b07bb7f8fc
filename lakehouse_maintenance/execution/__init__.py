"""Running plans: observe, recheck, rewrite, commit, verify, remember. Plans come from `planning`."""
