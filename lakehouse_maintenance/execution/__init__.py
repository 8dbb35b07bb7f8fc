"""Running plans: observe, recheck, rewrite, commit, verify, remember. Plans are made by `planning`, from what is seen here."""
