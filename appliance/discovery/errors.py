"""What can be wrong with what comes over the network."""


class BadPacket(Exception):
    """It is no message of multicast DNS that we can read. Nobody is told: it is a stranger's."""
