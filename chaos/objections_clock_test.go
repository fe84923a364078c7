package main_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// clockSource is a library that goes before the C library of a server, and adds to
// the time of day what a file says: a clock that can be set while the server runs.
// (libfaketime does the same, and does not get along with the allocator of Redis.)
// Redis counts the lives of keys by gettimeofday.
const clockSource = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset; // in seconds

__attribute__((constructor)) static void find(void) {
	const char *path = getenv("CLOCK_OFFSET");
	int fd = path ? open(path, O_RDONLY) : -1;
	if (fd < 0)
		return;
	void *m = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	if (m != MAP_FAILED)
		offset = m;
	close(fd);
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	struct timespec now;
	(void)tz;
	clock_gettime(CLOCK_REALTIME, &now);
	tv->tv_sec = now.tv_sec + (offset ? *offset : 0);
	tv->tv_usec = now.tv_nsec / 1000;
	return 0;
}
`

// compileClock compiles clockSource, and skips t where that cannot be done.
func compileClock(t *testing.T) (library string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the clocks of servers are set on Linux only")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "clock.c")
	if err := os.WriteFile(source, []byte(clockSource), 0o600); err != nil {
		t.Fatal(err)
	}
	library = filepath.Join(dir, "clock.so")
	if err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, source).Run(); err != nil {
		t.Skipf("the clocks of servers cannot be set without a C compiler: %v", err)
	}
	return library
}

// startWithClock starts a server whose clock can be set, with the library of
// compileClock.
func (s *stage) startWithClock(library string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "clock")
	setClock(s.t, file, 0)
	starting.Lock()
	defer starting.Unlock()
	for name, value := range map[string]string{"LD_PRELOAD": library, "CLOCK_OFFSET": file} {
		_ = os.Setenv(name, value) //nolint:usetesting // t.Setenv would last until the end of the test
		defer func() { _ = os.Unsetenv(name) }()
	}
	s.servers = append(s.servers, realredis.Start(s.t, 1)...)
	s.clocks = append(s.clocks, file)
}

// setClock writes the offset of a clock, in place: the server has the file mapped.
func setClock(t *testing.T, file string, offset time.Duration) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(int64(offset/time.Second))))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// jump sets the clocks of servers first to last-1 to offset from the true time.
func (s *stage) jump(first, last int, offset time.Duration) {
	s.t.Helper()
	for i := first; i < last; i++ {
		setClock(s.t, s.clocks[i], offset)
		s.until("the clock of a server is set", func() bool {
			reply := s.do(i, "time").([]any)
			seconds, _ := strconv.ParseInt(reply[0].(string), 10, 64)
			off := time.Until(time.Unix(seconds, 0)) - offset
			return off.Abs() < 10*time.Second
		})
	}
}
