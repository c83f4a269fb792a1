"""Measurements; `make bench` prints ratios against a peer in the same run, and nothing asserts them."""
