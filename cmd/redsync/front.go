//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// passed are the signals that go to COMMAND.
var passed = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT,
}

// A frontProcess is the process that the user has started. See link.go.
type frontProcess struct {
	job     *job
	stderr  *lineWriter
	link    *link
	holder  *os.Process
	signals chan os.Signal

	begun    bool           // COMMAND runs, or is being started
	ran      bool           // it has begun at some time
	leaving  deadline       // when this process ends, although the holder has not; zero until a signal asks for it
	ending   syscall.Signal // that signal
	command  int            // whom to kill; 0 until the holder has reported it
	deadline deadline       // of the lock, while COMMAND runs
	awake    time.Time      // when this process has run last

	outgoing  chan order // a holder that is stopped reads none
	orders    int        // how many the holder was sent
	continued int        // the number of the last order to continue
	goesOn    time.Time  // when that was sent
}

// front runs j, and returns the exit status.
func front(j *job, command string, args []string, stderr io.Writer) int {
	if _, err := lookUp(j.command[0]); err != nil {
		return say(stderr, err)
	}
	f := &frontProcess{
		job: j, stderr: newLineWriter(stderr), signals: make(chan os.Signal, 64), outgoing: make(chan order, maxOrders),
	}
	catch(f.signals)
	if err := f.start(command, args); err != nil {
		return say(stderr, &failure{exitInternal, err})
	}
	go f.sendOrders()
	status := f.run()
	if !f.stderr.flush(time.Second) {
		signal.Reset(passed...) // nobody reads stderr: from now on a signal ends this process
		f.stderr.flush(math.MaxInt64)
	}
	return status
}

// maxOrders is how many orders wait while the holder is stopped. Later signals are dropped: it is continued, or killed when
// the lock ends.
const maxOrders = 64

// sendOrders sends orders to the holder. It may wait for ever, which the rest of the front must not.
func (f *frontProcess) sendOrders() {
	for o := range f.outgoing {
		f.link.send(o)
	}
}

// catch lets signals come to c. A signal that the caller ignores stays ignored, as with nohup. A broken pipe must not end a
// process that has a lock.
func catch(c chan os.Signal) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	for _, s := range passed {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// lookUp returns the path of a program, or a failure with the exit status of shells.
func lookUp(program string) (string, error) {
	path, err := exec.LookPath(program)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound):
		return "", &failure{exitNotFound, fmt.Errorf("%q was not found", program)}
	}
	return "", &failure{exitNotRun, fmt.Errorf("%q cannot be executed: %w", program, cause(err))}
}

// cause returns the innermost error.
func cause(err error) error {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err
}

// start starts the holder.
func (f *frontProcess) start(command string, args []string) error {
	self := "/proc/self/exe" // works even after an update has replaced the file
	if runtime.GOOS != "linux" {
		var err error
		if self, err = os.Executable(); err != nil {
			return err
		}
	}
	near, far, err := newLinks()
	if err != nil {
		return err
	}
	defer far.Close()
	f.link = near
	argv := slices.Concat([]string{holderName, strconv.Itoa(int(far.Fd())), command, "--owner", f.job.owner}, args)
	//nolint:gosec // it is this program
	pid, err := syscall.ForkExec(self, argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return os.NewSyscallError("fork", err)
	}
	f.holder, err = os.FindProcess(pid)
	return err
}

// run does what the holder reports and what signals ask for, until the holder has ended.
func (f *frontProcess) run() int {
	reports := received[report](f.link)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		var soon <-chan time.Time
		switch now := time.Now(); {
		case f.begun:
			timer.Reset(f.deadline.wait(now))
			soon = timer.C
		case !f.leaving.at.IsZero():
			timer.Reset(f.leaving.wait(now))
			soon = timer.C
		}
		select {
		case r, ok := <-reports:
			if status, ended := f.heard(r, ok); ended {
				return status
			}
		case s := <-f.signals:
			f.got(s.(syscall.Signal)) //nolint:forcetypeassert // of package syscall on Unix
		case <-soon:
			switch now := time.Now(); {
			case !f.begun && f.leaving.left(now) > 0, f.begun && !f.isOver(now):
				continue
			}
			select {
			case r, ok := <-reports: // it may say that the lock was extended
				if status, ended := f.heard(r, ok); ended {
					return status
				}
			default:
				return f.outlived()
			}
		}
	}
}

// grace is how long at most the holder's report may take to be read, after the front was stopped.
const grace = 250 * time.Millisecond

// punctual is by how much a look may be late without a reason.
const punctual = 10 * time.Millisecond

// isOver reports whether the lock is not valid any more, and the holder has not reported anything else in time. If this
// process is late, what the holder has sent may not have been read yet. Then there is as much time for that again.
func (f *frontProcess) isOver(now time.Time) bool {
	left := f.deadline.left(now)
	late := max(-left, now.Sub(f.awake)-patience, now.Round(0).Sub(f.awake.Round(0))-patience)
	f.awake = now
	switch {
	case left > 0:
		return false
	case late > punctual:
		f.deadline = deadlineIn(now, min(late, grace))
		return false
	}
	return true
}

// heard takes a report. ended says that the holder has ended, and with which status this process ends. Without ok it was
// killed.
func (f *frontProcess) heard(r report, ok bool) (status int, ended bool) {
	switch {
	case !ok:
		return f.alone(), true
	case r.Finished:
		_, _ = f.holder.Wait()
		return r.Status, true
	}
	f.note(r)
	return 0, false
}

// outlived is called when the lock is over, or a signal has asked for the end of the wait, and the holder has done nothing
// about it.
func (f *frontProcess) outlived() int {
	f.kill()
	_ = f.holder.Kill()
	_, _ = f.holder.Wait()
	if !f.begun {
		return say(f.stderr, &failure{
			exitSignalBase + int(f.ending),
			fmt.Errorf("ended by the signal %q, although the process that gets the lock is stopped", f.ending),
		})
	}
	return say(f.stderr, &failure{exitLost, errors.New("lost: the process that holds the lock is stopped, so COMMAND was killed")})
}

// alone is called when the holder has been killed.
func (f *frontProcess) alone() int {
	_, _ = f.holder.Wait()
	if !f.begun {
		return say(f.stderr, &failure{exitInternal, errors.New("the process that gets the lock was killed")})
	}
	f.kill()
	return say(f.stderr, &failure{exitLost, errors.New("lost: the process that holds the lock was killed, so COMMAND was killed, too")})
}

// kill kills COMMAND.
func (f *frontProcess) kill() {
	if f.command != 0 {
		_ = syscall.Kill(f.command, syscall.SIGKILL)
	}
}

// note takes a report.
func (f *frontProcess) note(r report) {
	if r.Say != "" {
		line(f.stderr, r.Say)
	}
	if r.Begins {
		f.begun, f.ran, f.awake, f.leaving = true, true, time.Now(), deadline{}
	}
	if r.Command != 0 {
		f.command = r.Command
	}
	if r.Left != 0 && f.begun {
		f.deadline = deadline{time.Now().Add(r.Left), r.Until}
	}
	if r.Ended {
		f.begun, f.command, f.deadline = false, 0, deadline{}
	}
	if r.Stopped {
		f.stopped(r)
	}
}

// stopped takes the report that COMMAND, or the holder, has stopped. If a CONT is on its way to the holder, then this process
// goes on: it has got that signal after the one that has stopped it.
func (f *frontProcess) stopped(r report) {
	goesOn := f.continued > r.Orders
	if r.Itself {
		f.awaitStopped() // a CONT that comes before the holder has stopped would have no effect
		if goesOn {
			_ = f.holder.Signal(syscall.SIGCONT)
		}
	}
	if !goesOn {
		f.stop()
	}
}

// awaitStopped waits until the holder has stopped, but not for ever: another process may have continued it.
func (f *frontProcess) awaitStopped() {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for range 1000 {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(f.holder.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		if pid != 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
		<-look.C
	}
}

// stop stops this process, as a shell expects of a job whose program has stopped. It is SIGSTOP, because Go keeps its
// handler of SIGTSTP once it was set.
func (f *frontProcess) stop() {
	if isJob() {
		f.stderr.flush(grace) // what says why it stops
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}

// isJob reports whether a shell may wait for this process to stop, and continue it: there is a terminal, and the parent has
// made a process group for this process. A script makes none: nobody would continue what it has started.
func isJob() bool {
	terminal, err := openTerminal()
	if err != nil {
		return false
	}
	_ = terminal.Close()
	own, err := unix.Getsid(0)
	session, ofParent := unix.Getsid(os.Getppid())
	group, ofGroup := unix.Getpgid(os.Getppid())
	return errors.Join(err, ofParent, ofGroup) == nil && session == own && group != unix.Getpgrp()
}

// openTerminal opens the terminal that controls this process.
func openTerminal() (*os.File, error) { return os.Open("/dev/tty") }

// got handles a signal.
func (f *frontProcess) got(s syscall.Signal) {
	o := order{Signal: s}
	switch s {
	case syscall.SIGCONT:
		f.continued, f.goesOn = f.orders+1, time.Now()
		_ = f.holder.Signal(s) // it stops itself while it waits for the lock
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP:
		o.Keyboard = f.job.foreground && inForeground()
	}
	if s != syscall.SIGCONT && s != syscall.SIGTSTP && !f.ran && f.leaving.at.IsZero() {
		f.leaving, f.ending = deadlineIn(time.Now(), leaveTimeout), s
	}
	select {
	case f.outgoing <- o:
		f.orders++
	default:
		f.continued = min(f.continued, f.orders)
	}
	if s == syscall.SIGTSTP && time.Since(f.goesOn) < together {
		f.got(syscall.SIGCONT)
	}
}

// leaveTimeout is how long the holder has to end after a signal, if COMMAND has not begun. What a holder that is stopped has
// begun ends with its --ttl.
const leaveTimeout = 3 * closeTimeout

// together is how close a TSTP and a CONT must be to be taken as TSTP first. Go passes on two signals that wait by their
// numbers, so their order is not known, and a process that goes on is better than one that is stopped for ever.
const together = 50 * time.Millisecond

// inForeground reports whether the keyboard of the terminal sends its signals to the group of this process.
func inForeground() bool {
	terminal, err := openTerminal()
	if err != nil {
		return false
	}
	defer terminal.Close()
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
