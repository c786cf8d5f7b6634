"""The board in the daemon: fed by proven progress, heard, and told of in snapshots."""
