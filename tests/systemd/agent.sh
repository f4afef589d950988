#!/bin/sh
# The agent of the tests. It notes that it has begun, works until a test lets it finish, and hands over.
# Its desk is the folder /var/tmp/desks/ACCOUNT-PROJECT:
#   begun    RUN STEP PID, a line for each start
#   key      the key that it was given
#   STEP     made by the test: the agent may finish that step
#   leaves   made by the test: the exit code by which it answers SIGTERM
[ "$1" = --version ] && { echo 2.1.0; exit; }
cat > /dev/null
desk=/var/tmp/desks/$(id -un)-$(basename "$PWD")
mkdir -p "$desk"
printf '%s' "$ANTHROPIC_API_KEY" > "$desk/key"
[ ! -e "$desk/leaves" ] || trap "exit $(cat "$desk/leaves")" TERM
echo "$HANDOFFD_RUN $HANDOFFD_STEP $$" >> "$desk/begun"
until [ -e "$desk/$HANDOFFD_STEP" ]; do sleep 0.1; done
printf -- '---\nstep: %s\ndispatch: %s\nstatus: pass\n---\n' "$HANDOFFD_STEP" "$HANDOFFD_RUN" > .ai/new
mv .ai/new .ai/HANDOFF.md
