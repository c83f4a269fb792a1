"""Schedule: one run for each tick of a rule, whatever the retries."""
