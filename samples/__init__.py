"""Handlers to copy, each with a SAM template, an event and a test; `make demo` runs them here."""
