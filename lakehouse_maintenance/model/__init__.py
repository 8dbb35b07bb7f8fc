"""Values that every other package shares: names, locations, facts, plans, outcomes, errors. No I/O lives here."""
