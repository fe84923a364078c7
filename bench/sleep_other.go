//go:build !linux

package main

import "time"

// sleepExactly sleeps, to within about 1 ms.
func sleepExactly(d time.Duration) { time.Sleep(d) }
