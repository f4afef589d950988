"""What happens by the clock: the timeout poller."""
