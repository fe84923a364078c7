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
	job      *job
	stderr   *lineWriter
	link     *link
	inbox    *inbox
	holder   int  // the process; nobody has waited for it yet
	gone     bool // somebody has
	signals  chan os.Signal
	children chan os.Signal // a child has ended

	begun   bool           // COMMAND runs, or is being started
	ran     bool           // it has begun at some time
	killed  bool           // this process has killed COMMAND, and the holder has not said that the lock was lost
	leaving deadline       // when this process ends, although the holder has not; zero if it waits for the holder
	ending  syscall.Signal // why, if COMMAND has not begun
	command int            // whom to kill; 0 until the holder has reported it
	had     map[int]bool   // the children of this process when COMMAND was to be started
	vigil   vigil          // over COMMAND

	brake     *brake
	outgoing  chan order // a holder that is stopped reads none
	orders    int        // how many the holder was sent
	continued int        // the number of the last order to continue
	goesOn    time.Time  // when that was sent
	doubts    bool       // COMMAND has been stopped, and the holder was asked whether it still is
	doubtful  int        // how many orders the holder had got when it was
}

// front runs j, and returns the exit status.
func front(j *job, command string, args []string, stderr io.Writer) int {
	if _, err := lookUp(j.command[0]); err != nil {
		return say(stderr, err)
	}
	f := &frontProcess{
		job: j, stderr: newLineWriter(stderr), signals: make(chan os.Signal, 64), children: make(chan os.Signal, 1),
		outgoing: make(chan order, maxOrders),
	}
	brake, err := newBrake() // before it is known that a CONT has come
	if err != nil {
		return say(stderr, &failure{exitInternal, err})
	}
	f.brake = brake
	catch(f.signals)
	adopts()
	signal.Notify(f.children, syscall.SIGCHLD)
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

// selfInProc is this program. It works even after an update has replaced the file.
const selfInProc = "/proc/self/exe"

// ownPath returns the path of this program. link is selfInProc, which only Linux has, and only if /proc is mounted.
func ownPath(link string) (string, error) {
	if _, err := os.Stat(link); err == nil {
		return link, nil
	}
	if path, err := os.Executable(); err == nil { // on Linux it needs /proc, too
		return path, nil
	}
	path, err := exec.LookPath(os.Args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", fmt.Errorf("redsync cannot find its own program: mount /proc, or call redsync by its path: %w", err)
	}
	return path, nil
}

// start starts the holder.
func (f *frontProcess) start(command string, args []string) error {
	self, err := ownPath(selfInProc)
	if err != nil {
		return err
	}
	near, far, err := newLinks()
	if err != nil {
		return err
	}
	defer far.Close()
	f.link = near
	if f.inbox, err = newInbox(near); err != nil {
		return err
	}
	argv := slices.Concat([]string{holderName, strconv.Itoa(int(far.Fd())), command, "--owner", f.job.owner}, args)
	//nolint:gosec // it is this program
	f.holder, err = syscall.ForkExec(self, argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return &os.PathError{Op: "fork", Path: self, Err: err}
	}
	return nil
}

// run does what the holder reports and what signals ask for, until the holder has ended.
func (f *frontProcess) run() int {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		var soon <-chan time.Time
		switch now := time.Now(); {
		case !f.leaving.at.IsZero():
			timer.Reset(f.leaving.wait(now))
			soon = timer.C
		case f.begun:
			timer.Reset(f.vigil.next.wait(now))
			soon = timer.C
		}
		select {
		case <-f.inbox.news:
			if status, ended := f.hear(); ended {
				return status
			}
		case s := <-f.signals:
			f.got(s.(syscall.Signal)) //nolint:forcetypeassert // of package syscall on Unix
		case <-f.children:
			f.reap()
		case <-soon:
			if status, ended := f.hear(); ended { // it may say that the lock was extended
				return status
			}
			if f.watch(time.Now()) {
				return f.outlived()
			}
		}
	}
}

// watch kills COMMAND if it is time, and reports whether it is time to end without the holder.
func (f *frontProcess) watch(now time.Time) bool {
	if !f.leaving.at.IsZero() {
		return f.leaving.left(now) <= 0
	}
	if !f.begun {
		return false
	}
	switch f.vigil.look(now) {
	case ask:
		f.order(order{Asks: true})
	case kill:
		f.kill()
		f.killed, f.leaving = true, deadlineIn(now, grace) // a holder that runs says more than this process knows
		return f.command == 0                              // COMMAND dies with the holder
	}
	return false
}

// hear takes what the holder has sent. ended says that the holder has ended, and with which status this process ends.
func (f *frontProcess) hear() (status int, ended bool) {
	reports, ok := f.inbox.take()
	for _, r := range reports {
		if r.Finished {
			f.awaitHolder()
			return f.finished(r.Status), true
		}
		f.note(r)
	}
	if !ok {
		return f.alone(), true
	}
	return 0, false
}

// finished returns the exit status after the holder has ended with this one.
func (f *frontProcess) finished(status int) int {
	if !f.killed || status == exitLost {
		return status
	}
	return say(f.stderr, &failure{exitLost, errors.New("lost: the process that holds the lock was stopped for too long, so COMMAND was killed")})
}

// reap waits for the children that have ended, among them what COMMAND has left behind: see adopts.
func (f *frontProcess) reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid <= 0:
			return
		case pid == f.holder:
			f.gone = true
		}
	}
}

// signalHolder sends a signal to the holder.
func (f *frontProcess) signalHolder(s syscall.Signal) {
	if !f.gone { // else another process may have its number
		_ = syscall.Kill(f.holder, s)
	}
}

// awaitHolder waits for the end of the holder.
func (f *frontProcess) awaitHolder() {
	for !f.gone {
		_, err := syscall.Wait4(f.holder, nil, 0, nil)
		f.gone = !errors.Is(err, syscall.EINTR)
	}
}

// outlived is called when the holder has neither kept COMMAND under the lock nor ended it, or when a signal has asked for the
// end of the wait and the holder has done nothing about it.
func (f *frontProcess) outlived() int {
	f.signalHolder(syscall.SIGKILL)
	f.awaitHolder()
	f.killAdopted()
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
	if !f.begun {
		f.awaitHolder()
		return say(f.stderr, &failure{exitInternal, errors.New("the process that gets the lock was killed")})
	}
	f.kill()
	f.awaitHolder()
	f.killAdopted()
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
		f.begun, f.ran, f.killed, f.leaving = true, true, false, deadline{}
		f.vigil = vigil{killAfter: f.job.killAfter}
		f.had = map[int]bool{f.holder: true}
		for _, pid := range children() {
			f.had[pid] = true
		}
	}
	if r.Command != 0 {
		f.command = r.Command
	}
	if r.Left != 0 && f.begun {
		now := time.Now()
		f.vigil.told(now, deadline{now.Add(r.Left), r.Until})
	}
	if r.Ended {
		f.begun, f.command, f.leaving, f.doubts = false, 0, deadline{}, false
		f.killed = f.killed && !r.Lost
	}
	if r.Stopped {
		f.stopped(r)
	}
}

// stopped takes the report that COMMAND, or the holder, has stopped. This process shall stop, too, but not if anyone has
// continued it after what the report tells of: a shell would take the job for stopped again. The report may be read late, and
// Go tells of a CONT late. The argument has four parts:
//
//   - A CONT that this process knows is an order with a number. A report is old, and has no effect, if the holder had not got
//     that order when it sent the report. The holder gets the order, and continues COMMAND (or this process continues the holder).
//   - A CONT that this process does not know releases the brake, so stop does not stop. It acts on that CONT instead.
//   - A CONT after this process has stopped continues it, and stop acts on it.
//   - If COMMAND goes on or ends for another reason, the holder sends CONT until an order to continue has told it that this
//     process runs. From then on the first part holds for all reports that the holder has sent before.
//
// Before it stops, this process asks the holder whether COMMAND is still stopped. The answer alone does not suffice: the
// holder does not see that COMMAND goes on while COMMAND is ending, and COMMAND may go on when the answer is on its way.
func (f *frontProcess) stopped(r report) {
	switch {
	case r.Itself:
		f.awaitStopped() // a CONT that comes before the holder has stopped would have no effect
		if f.continued <= r.Orders {
			f.stop()
			return
		}
		f.signalHolder(syscall.SIGCONT)
	case !r.Still:
		if f.continued <= r.Orders {
			f.doubts, f.doubtful = true, r.Orders
			f.order(order{Asks: true})
		}
	case f.doubts:
		f.doubts = false
		if f.continued <= f.doubtful {
			f.stop()
		}
	}
}

// awaitStopped waits until the holder has stopped, but not for ever: another process may have continued it.
func (f *frontProcess) awaitStopped() {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for range 1000 {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(f.holder, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		if pid != 0 && !errors.Is(err, syscall.EINTR) {
			f.gone = f.gone || pid > 0 && !status.Stopped()
			return
		}
		<-look.C
	}
}

// stop stops this process, as a shell expects of a job whose program has stopped.
func (f *frontProcess) stop() {
	if isJob() {
		f.stderr.flush(grace) // what says why it stops
		if f.brake.stop() {
			f.goOn()
		}
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
		if f.brake.isContinued() { // else stop has acted on it
			f.goOn()
		}
		return
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP:
		o.Keyboard = f.command != 0 && f.job.foreground && inForeground() // one that is being started may have missed it
	}
	if s != syscall.SIGTSTP && !f.ran && f.leaving.at.IsZero() {
		f.leaving, f.ending = deadlineIn(time.Now(), leaveTimeout), s
	}
	f.order(o)
	if s == syscall.SIGTSTP && time.Since(f.goesOn) < together {
		f.goOn()
	}
}

// goOn makes the holder and COMMAND go on after a CONT.
func (f *frontProcess) goOn() {
	f.continued, f.goesOn = f.orders+1, time.Now()
	f.signalHolder(syscall.SIGCONT) // it stops itself while it waits for the lock
	f.order(order{Signal: syscall.SIGCONT})
}

// order sends an order to the holder.
func (f *frontProcess) order(o order) {
	select {
	case f.outgoing <- o:
		f.orders++
	default:
		f.continued = min(f.continued, f.orders)
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
