"""Steps: reserve, charge, send; after a crash it goes on where it stopped."""
