package main

import (
	"syscall"
	"time"
)

// sleepExactly sleeps in the kernel, to within some 50 µs.
func sleepExactly(d time.Duration) {
	ts := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&ts, nil) // a signal may end it early, by little
}
