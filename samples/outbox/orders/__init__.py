"""The code of both functions: `handler` takes orders, `relay` publishes what they left to be told."""
