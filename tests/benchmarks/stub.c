/* An executor that does nothing but hand over, and notes when it began and when its hand-off was there.
 *
 * Its first act is to read the clock; its last, after the rename that publishes HANDOFF.md, is to read it
 * again, to add one line to a log that is open already, and to exit:
 *
 *     RUN STARTED_NS RENAMED_NS
 *
 * Both times are of CLOCK_MONOTONIC, which is one clock for all processes of a machine.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

int main(int argc, char **argv) {
    long long started = now_ns();
    char text[1024];
    if (argc != 2)
        return 2;
    int log = open(argv[1], O_WRONLY | O_APPEND | O_CREAT, 0600);
    int handoff = open(".ai/.HANDOFF.new", O_WRONLY | O_TRUNC | O_CREAT, 0644);
    int length = snprintf(text, sizeof text,
        "---\nstory: %s\nstep: %s\nattempt: %s\ndispatch: %s\nstatus: pass\n---\nHanded over.\n",
        variable("HANDOFFD_STORY"), variable("HANDOFFD_STEP"), variable("HANDOFFD_ATTEMPT"),
        variable("HANDOFFD_RUN"));
    if (log < 0 || handoff < 0 || write(handoff, text, length) != length || close(handoff) != 0)
        return 3;
    if (rename(".ai/.HANDOFF.new", ".ai/HANDOFF.md") != 0)
        return 4;
    long long renamed = now_ns();
    length = snprintf(text, sizeof text, "%s %lld %lld\n", variable("HANDOFFD_RUN"), started, renamed);
    _exit(write(log, text, length) == length ? 0 : 5);
}
