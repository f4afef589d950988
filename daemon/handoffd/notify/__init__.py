"""How people are told: notices, the sinks that send them, and when, how often and in what form that happens.

Others hand a `Notice` to the `Notifier` and go on. It relies on a box that keeps notices until they are
delivered (`ports.Box`; the journal, in the daemon), on the settings, and on nothing else of the daemon.

It must never hold up the code that hands a notice in, send one that is not recorded without saying so, decide
what people are told of (the engine and the fleet do), or let a secret of a sink into a log or a message.
"""
