"""What happens by the clock: jobs at fixed intervals, and stories that the settings start at some time.

`poller` rings, `cron` reckons calendars and time zones, `plan` says which schedule concerns which project
and what is to be done now. It relies on APScheduler for times, and on the settings.

It must never start anything itself, keep what was dealt with (the fleet does, in the journal), or trust the
wall clock to go forward.
"""
