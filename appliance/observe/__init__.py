"""What the box shows of itself: metrics and log lines."""
