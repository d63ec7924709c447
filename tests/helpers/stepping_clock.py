"""A clock on the wall that can be set while a process runs, for all of it: Python, gRPC and TLS alike.

A library that is loaded before all others adds an offset, which is read from a file, to whatever asks for the
time of day. Monotonic clocks are left alone, as setting the time leaves them alone.
"""

import os
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("STEPPING_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file >= 0) {
        void *found = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
        if (found != MAP_FAILED) offset = found;
    }
}

static int64_t ahead(void) { return offset ? *offset : 0; }

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(which, now);
    if (result == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return result;
}

time_t time(time_t *into) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (into) *into = precise.tv_sec;
    return precise.tv_sec;
}
"""


class SteppingClock:
    """Sets the time of day of processes that are started with its environment."""

    def __init__(self, folder: Path) -> None:
        """Raises a FileNotFoundError where there is no C compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("there is no C compiler")
        self._file, library = folder / "offset", folder / "stepping.so"
        self.set(0)
        source = folder / "stepping.c"
        source.write_text(_SOURCE)
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"], check=True
        )
        self.environment = {**os.environ, "LD_PRELOAD": str(library), "STEPPING_CLOCK": str(self._file)}

    def set(self, seconds: int) -> None:
        """From now on the clock is so many seconds ahead."""
        if not self._file.exists():
            self._file.write_bytes(bytes(8))
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", seconds))
