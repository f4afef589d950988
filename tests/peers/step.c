/* One step of work, as every engine runs it: a process of its own that notes when it begins and when it ends.
 *
 *     step LOG MILLISECONDS [NAME]
 *
 * Its first act is to read the clock and to append a line to the log, its last before it exits to append another:
 *
 *     B|E NAME PID NS
 *
 * The time is of CLOCK_MONOTONIC, which is one clock for all processes of a machine. A line is one write to a file
 * opened with O_APPEND, so lines of steps that run at once do not mix. Without a NAME it is an agent of handoffd:
 * its name is the project's folder and the step, and it publishes a HANDOFF.md before it ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int note(int log, char kind, const char *name, long long at_ns) {
    char line[512];
    int length = snprintf(line, sizeof line, "%c %s %d %lld\n", kind, name, (int)getpid(), at_ns);
    return write(log, line, length) == length;
}

static int hand_over(void) {
    char text[1024];
    int handoff = open(".ai/.HANDOFF.new", O_WRONLY | O_TRUNC | O_CREAT, 0644);
    int length = snprintf(text, sizeof text,
        "---\nstory: %s\nstep: %s\nattempt: %s\ndispatch: %s\nstatus: pass\n---\nHanded over.\n",
        variable("HANDOFFD_STORY"), variable("HANDOFFD_STEP"), variable("HANDOFFD_ATTEMPT"),
        variable("HANDOFFD_RUN"));
    return handoff >= 0 && write(handoff, text, length) == length && close(handoff) == 0
        && rename(".ai/.HANDOFF.new", ".ai/HANDOFF.md") == 0;
}

int main(int argc, char **argv) {
    long long began_ns = now_ns();
    char folder[512], own[512];
    if (argc < 3 || argc > 4)
        return 2;
    const char *name = argc == 4 ? argv[3] : own;
    if (argc == 3) {
        if (getcwd(folder, sizeof folder) == NULL)
            return 3;
        snprintf(own, sizeof own, "%.200s/%.200s", strrchr(folder, '/') + 1, variable("HANDOFFD_STEP"));
    }
    int log = open(argv[1], O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (log < 0 || !note(log, 'B', name, began_ns))
        return 4;
    long milliseconds = atol(argv[2]);
    struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
    if (argc == 3 && !hand_over())
        return 5;
    _exit(note(log, 'E', name, now_ns()) ? 0 : 6);
}
