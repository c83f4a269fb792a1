"""Outbox: an order and its event committed together, the event published once."""
