"""Which engine settings are fastest on this machine, found by measuring them."""
