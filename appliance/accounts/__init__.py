"""Who may use the box: keys, and later quotas and costs."""
