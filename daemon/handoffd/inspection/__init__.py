"""What a project's files say, without a journal and without supervising it: read, never written."""
