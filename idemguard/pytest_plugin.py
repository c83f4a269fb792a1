"""The pytest fixtures of idemguard."""
