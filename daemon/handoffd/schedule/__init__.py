"""What happens by the clock: jobs at fixed intervals, and stories that the settings start at set times.

`poller` runs the jobs, `cron` computes times from calendars and time zones, `plan` decides which schedule
concerns which project and whether it starts now. It relies on APScheduler for intervals, and on the settings.

It must never start a story itself, record which times were handled (the fleet does, in the journal), or trust
the wall clock to go forward.
"""
