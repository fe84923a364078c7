package main

import (
	"syscall"
	"time"
)

// sleepExactly sleeps in the kernel. By default the kernel may wake a thread 50 µs late: this is the
// slack of the thread's timers. sleepExactly sets the slack to its least value.
func sleepExactly(d time.Duration) {
	const setTimerSlack, leastSlack = 29, 1
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, leastSlack, 0) // if this fails, the sleep may end late
	ts := syscall.NsecToTimespec(d.Nanoseconds())
	for syscall.Nanosleep(&ts, &ts) == syscall.EINTR { // the runtime's signals end it early
	}
}
