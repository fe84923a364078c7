package main

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// A brake stops this process, unless it was continued in the meantime. To look for a CONT and then to send oneself SIGSTOP is
// not enough: a CONT between the two has no effect, and Go tells of a CONT only some time after it has come. So the brake
// keeps one signal that waits: it stops the process once it is let through, and the kernel drops it in the moment in
// which anyone sends CONT.
//
// To set that signal again also makes the kernel drop a CONT that Go has not seen. That is right if the caller first sets it
// (isContinued, stop) and then acts as after a CONT.
type brake struct {
	calls   chan func() // for the one thread that blocks the signal
	waiting int         // a file that is readable while the signal waits
	signals unix.Sigset_t
}

// brakeSignal stops a process. It can be blocked, which SIGSTOP cannot, and Go has no handler for it, which it keeps for
// TSTP.
const brakeSignal = unix.SIGTTIN

// newBrake returns a brake whose signal waits.
func newBrake() (*brake, error) {
	b := &brake{calls: make(chan func())}
	b.signals.Val[0] = 1 << (brakeSignal - 1)
	var err error
	if b.waiting, err = unix.Signalfd(-1, &b.signals, unix.SFD_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("signalfd", err)
	}
	go func() {
		runtime.LockOSThread()
		for call := range b.calls {
			call()
		}
	}()
	b.onThread(func() {
		if err = unix.PthreadSigmask(unix.SIG_BLOCK, &b.signals, nil); err == nil {
			b.set()
		}
	})
	return b, os.NewSyscallError("sigprocmask", err)
}

// onThread calls do on the thread that blocks the signal.
func (b *brake) onThread(do func()) {
	done := make(chan struct{})
	b.calls <- func() {
		defer close(done)
		do()
	}
	<-done
}

// set makes the signal wait.
func (b *brake) set() { _ = unix.Tgkill(os.Getpid(), unix.Gettid(), brakeSignal) }

// isContinued reports whether a CONT has come since the signal was set. Then it sets the signal again.
func (b *brake) isContinued() (isContinued bool) {
	b.onThread(func() {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(b.waiting), Events: unix.POLLIN}}, 0) //nolint:gosec // a file's number
		if isContinued = n == 0; isContinued {
			b.set()
		}
	})
	return isContinued
}

// stop stops this process, unless a CONT has come since the signal was set. It returns once a CONT has come, sets the signal
// again, and reports that the caller has to act on that CONT: nobody else tells of it.
func (b *brake) stop() bool {
	b.onThread(func() {
		_ = unix.PthreadSigmask(unix.SIG_UNBLOCK, &b.signals, nil)
		_ = unix.PthreadSigmask(unix.SIG_BLOCK, &b.signals, nil)
		b.set()
	})
	return true
}
