//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// A holder is the process that holds the lock. Its loop is the only one to touch COMMAND. Another goroutine gets the lock and
// releases it: see work.
type holder struct {
	job    *job
	front  int // the process
	outbox *outbox
	log    keptLines               // of the library; only work uses it
	cancel context.CancelCauseFunc // ends the wait for the lock, or lead

	terms    chan *term
	checks   chan check // the nodes have been asked
	results  chan result
	children chan os.Signal // something has become of COMMAND

	command *command       // nil while no COMMAND runs
	ended   syscall.Signal // has ended the wait for the lock, or lead
	gone    bool           // the front has been killed
	begun   bool           // COMMAND has been started
	isTold  bool           // the front has been told to stop, and was not continued since then
	orders  int            // how many the front has sent
	stops   int            // how many of them were TSTP
}

// A check asks the nodes whether COMMAND still has the lock.
type check struct {
	command *command
	goOn    bool // COMMAND shall be continued if it has the lock
	stops   int  // those of the holder when it was asked: a later TSTP overrides goOn
}

// A result is what the process ends with.
type result struct {
	status int
	err    error // the line to say, nil if there is none
}

// holderMain is the main function of the holder.
func holderMain() int {
	runtime.LockOSThread() // COMMAND dies with the thread that has started it (diesWithHolder): this one lasts as long as the process
	fd, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return exitInternal
	}
	l, err := openLink(fd)
	if err != nil {
		return exitInternal
	}
	signals := make(chan os.Signal, 1) // the front passes on what it gets, so others are ignored
	catch(signals)
	go func() {
		for range signals {
			continue
		}
	}()
	h := &holder{
		front: os.Getppid(), outbox: newOutbox(l),
		terms: make(chan *term), checks: make(chan check, 1), results: make(chan result, 1), children: make(chan os.Signal, 1),
	}
	signal.Notify(h.children, syscall.SIGCHLD)
	status := h.run(l)
	h.outbox.finish(status)
	return status
}

// run does the job, and returns the exit status.
func (h *holder) run(l *link) int {
	j, err := parseJob(os.Args[2], os.Args[3:])
	if err != nil { // cannot be: the front has parsed them
		return h.report(result{exitUsage, err})
	}
	h.job = j
	ctx, cancel := context.WithCancelCause(context.Background())
	h.cancel = cancel
	go func() { h.results <- h.work(ctx) }()
	return h.report(h.loop(received(l)))
}

// report says what the result says, and returns its status.
func (h *holder) report(r result) int {
	if r.err != nil {
		h.say(r.err.Error())
	}
	return r.status
}

func (h *holder) say(text string) { h.outbox.put(report{Say: text}) }

// loop does what the front orders, and keeps COMMAND on its leash, until the work is done.
func (h *holder) loop(orders <-chan order) result {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		var lost <-chan struct{}
		var soon <-chan time.Time
		if c, now := h.command, time.Now(); c != nil {
			timer.Reset(min(c.leash.wait(now), c.quit.wait(now)))
			soon = timer.C
			if !c.leash.isEnding() {
				lost = c.term.mutex.Lost()
			}
		}
		select {
		case o, ok := <-orders:
			if !ok {
				h.orphaned()
				orders = nil
				continue
			}
			h.obey(o)
		case t := <-h.terms:
			h.begin(t)
		case <-h.children:
			h.attend()
		case <-lost:
			h.look()
		case <-soon:
			h.look()
		case c := <-h.checks:
			h.checked(c)
		case r := <-h.results:
			if h.ended != 0 && r.status != exitLost {
				r = result{exitSignalBase + int(h.ended), fmt.Errorf("ended by the signal %q", h.ended)}
			}
			return r
		}
	}
}

// orphaned is called when the front has been killed: COMMAND is killed, too, and the lock is released.
func (h *holder) orphaned() {
	h.gone = true
	h.cancel(errors.New("redsync was killed"))
	if h.command != nil {
		h.command.signal(syscall.SIGKILL)
	}
}

// begin starts COMMAND in a term.
func (h *holder) begin(t *term) {
	if h.gone || h.ended != 0 {
		t.done <- outcome{}
		return
	}
	until, left := t.validity()
	if left <= h.job.killAfter { // this process was stopped, or the machine slept
		t.done <- outcome{status: exitLost, err: errors.New("lost before COMMAND could begin")}
		return
	}
	valid := report{Begins: true, Left: left, Until: time.Now().Round(0).Add(left)}
	h.outbox.putNow(valid) // from now on the front watches: this process may be stopped or killed when COMMAND has just begun
	c, err := h.job.start(t, h.front)
	if err != nil {
		h.outbox.put(report{Ended: true})
		var f *failure
		errors.As(err, &f)
		t.done <- outcome{status: f.status, err: err}
		return
	}
	h.command, h.begun = c, true
	c.until = until
	h.outbox.put(report{Command: c.target})
	h.look()
}

// look keeps COMMAND on its leash, and tells the front how long the lock is valid.
func (h *holder) look() {
	c, now := h.command, time.Now()
	until, left := c.term.validity()
	switch c.leash.look(now, left) {
	case syscall.SIGTERM:
		c.signal(syscall.SIGTERM)
		c.alarmed = until
		h.say(fmt.Sprintf("%s: COMMAND gets TERM now, and KILL in %v", c.trouble(left), c.leash.kill.left(now).Round(time.Millisecond)))
	case syscall.SIGKILL:
		c.signal(syscall.SIGKILL)
		h.say(c.trouble(left) + ": COMMAND was killed")
	}
	if !c.quit.at.IsZero() && c.quit.left(now) <= 0 {
		c.signal(syscall.SIGKILL)
		c.quit = deadline{}
		h.say(fmt.Sprintf("COMMAND has not ended within --kill-after %v, and was killed", h.job.killAfter))
	}
	if !c.stopped {
		h.wakeFront()
	}
	if !until.Equal(c.until) && left > 0 {
		c.until = until
		h.outbox.put(report{Left: left, Until: now.Round(0).Add(left)})
	}
}

// attend handles what has become of COMMAND.
func (h *holder) attend() {
	for h.command != nil {
		s, ok := h.command.change()
		if !ok {
			return
		}
		h.noted(s)
	}
}

// noted handles a change of COMMAND.
func (h *holder) noted(s syscall.WaitStatus) {
	c := h.command
	switch {
	case s.Stopped():
		c.stopped, h.isTold = true, true
		if sig := s.StopSignal(); !h.job.foreground && (sig == syscall.SIGTTIN || sig == syscall.SIGTTOU) {
			h.say("COMMAND has stopped, because it wants to use the terminal: see --foreground")
		}
		h.outbox.put(report{Stopped: true, Orders: h.orders})
	case s.Continued():
		c.stopped = false
		h.wakeFront()
		h.check(false)
	default:
		h.over(c, s)
	}
}

// wakeFront continues the front if it was told to stop. Until the front says that it was continued, look repeats that: a front
// without a brake may stop itself later than it gets this signal.
func (h *holder) wakeFront() {
	if h.isTold && !h.gone {
		_ = syscall.Kill(h.front, syscall.SIGCONT)
	}
}

// over handles the end of COMMAND.
func (h *holder) over(c *command, s syscall.WaitStatus) {
	h.command = nil
	o := outcome{status: statusOf(s)}
	left := c.term.mutex.Remaining()
	byFront := s.Signaled() && s.Signal() == syscall.SIGKILL && !c.leash.killed && left <= h.job.killAfter // this process is late
	lost := c.leash.isEnding() || byFront
	if byFront {
		h.say(c.trouble(left) + ": COMMAND was killed")
	}
	if c.target < 0 && (lost || h.gone || h.job.leads && h.ended != 0) {
		c.signal(syscall.SIGKILL) // what is left of its group, before another process has the lock
		o.awaitGone = c.awaitGone
	}
	if lost {
		o.status, o.err = exitLost, errors.New("lost: COMMAND was ended, and another process may have the lock")
		if c.isSaved(left) {
			o.err = errors.New("COMMAND was ended, because the lock could not be extended in time. It was extended later, so no other process has had it")
		}
	}
	h.outbox.put(report{Ended: true, Lost: lost})
	h.wakeFront()
	c.term.done <- o
}

// obey does what the front orders.
func (h *holder) obey(o order) {
	if o.Asks || o.Signal == syscall.SIGCONT {
		h.attend() // else an answer is old, or a stop before this CONT is taken for one after it
	}
	h.orders++
	if o.Asks {
		h.answer(true)
		return
	}
	c := h.command
	switch o.Signal {
	case syscall.SIGCONT:
		h.isTold = false
	case syscall.SIGTSTP:
		h.stops++
	}
	switch {
	case c == nil:
		h.obeyAlone(o.Signal)
	case o.Signal == syscall.SIGCONT:
		h.answer(false)
		h.check(true)
	case h.job.leads && (o.Signal == syscall.SIGTERM || o.Signal == syscall.SIGINT):
		h.ended = o.Signal
		h.cancel(fmt.Errorf("ended by the signal %q", o.Signal))
		if c.quit.at.IsZero() {
			c.quit = deadlineIn(time.Now(), h.job.killAfter)
		}
		h.pass(o)
	default:
		h.pass(o)
	}
	if c != nil && c.stopped && ends(o.Signal) {
		h.check(true) // while it is stopped it gets no other signal
	}
}

// answer tells the front how long the lock is valid, and if it asked for that, whether COMMAND is stopped.
func (h *holder) answer(asked bool) {
	if c := h.command; c != nil {
		left := c.term.mutex.Remaining()
		isStopped := asked && c.stopped
		h.outbox.put(report{Left: max(left, 1), Until: time.Now().Round(0).Add(left), Stopped: isStopped, Still: isStopped, Orders: h.orders})
	}
}

// ends reports whether the signal asks a process to end.
func ends(s syscall.Signal) bool {
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// pass passes a signal on to COMMAND, unless the terminal has sent it to COMMAND, too.
func (h *holder) pass(o order) {
	if !o.Keyboard {
		h.command.signal(o.Signal)
	}
}

// obeyAlone does what a signal asks for while no COMMAND runs.
func (h *holder) obeyAlone(s syscall.Signal) {
	switch s {
	case syscall.SIGCONT:
	case syscall.SIGTSTP:
		h.outbox.putNow(report{Stopped: true, Itself: true, Orders: h.orders})
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // the front continues it
	default:
		if h.begun && !h.job.leads {
			return // COMMAND has ended, and the lock is being released
		}
		if h.ended == 0 {
			h.ended = s
		}
		h.cancel(fmt.Errorf("ended by the signal %q", s))
	}
}

// checkTimeout bounds how long COMMAND waits to be continued.
const checkTimeout = time.Second

// check asks the nodes whether the lock is still held. Then checked kills COMMAND, or continues it if it shall go on.
func (h *holder) check(goOn bool) {
	c := check{h.command, goOn, h.stops}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		defer cancel()
		_, _ = c.command.term.mutex.ValidContext(ctx) // a loss that it proves is the Mutex's
		h.checks <- c
	}()
}

// checked kills COMMAND if the lock is lost. Otherwise it continues COMMAND if it shall go on.
func (h *holder) checked(asked check) {
	c := asked.command
	switch {
	case h.command != c:
	case c.isLost():
		h.say(c.trouble(0) + ": COMMAND was killed before it could go on")
		c.leash.end(time.Now())
		c.signal(syscall.SIGKILL)
		c.signal(syscall.SIGCONT)
	case asked.goOn && asked.stops == h.stops:
		c.signal(syscall.SIGCONT)
	}
}
