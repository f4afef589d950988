#!/bin/sh
# What stub.c does, for machines without a C compiler. Its clock is /proc/uptime, which a shell can read
# without starting a program, in steps of 10 ms.
read -r started _ < /proc/uptime
printf -- '---\nstory: %s\nstep: %s\nattempt: %s\ndispatch: %s\nstatus: pass\n---\nHanded over.\n' \
    "$HANDOFFD_STORY" "$HANDOFFD_STEP" "$HANDOFFD_ATTEMPT" "$HANDOFFD_RUN" > .ai/.HANDOFF.new
# A shell has no rename of its own, so mv does it; the clock is read when mv has returned.
mv .ai/.HANDOFF.new .ai/HANDOFF.md
read -r renamed _ < /proc/uptime
echo "$HANDOFFD_RUN ${started%.*}${started#*.}0000000 ${renamed%.*}${renamed#*.}0000000" >> "$1"
