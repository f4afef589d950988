#!/bin/bash
# The agent of the tests. What it does is the name of its project; its account's desk tells when that may end.
cat > /dev/null
case $(basename "$PWD") in
greedy) python3 -ISc 'some = bytearray(300 << 20)' || exit ;;             # ends as what it started: killed
builder) python3 -ISc 'some = bytearray(300 << 20)' || echo killed ;;     # goes on without its tool
forker) exec python3 -ISc 'import os, time; [os.fork() or time.sleep(900) for _ in range(60)]' ;;
calm) until [ -e "/var/tmp/$(id -un)/go" ]; do sleep 1; done ;;           # takes little, and lasts
esac
printf -- '---\nstep: %s\ndispatch: %s\nstatus: pass\n---\n' "$HANDOFFD_STEP" "$HANDOFFD_RUN" > .ai/new
mv .ai/new .ai/HANDOFF.md
