"""Notifies people: notices, the sinks that send them, and when, how often and in what form they do.

Others hand a `Notice` to the `Notifier` and go on. It relies on a box that keeps notices until they are
delivered (`ports.Box`; the journal, in the daemon), on the settings, and on nothing else of the daemon.

It must never block its callers, send an unrecorded notice without logging that, decide which events cause a
notice (the engine and the fleet do), or let a secret of a sink into a log or a message.
"""
