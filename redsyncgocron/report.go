package redsyncgocron

import (
	"errors"
	"log/slog"
)

// A Kind says what an Event is about.
type Kind string

// The kinds of events. A later version may add some.
const (
	// NotLocked: Lock of a Locker has failed, and not because another process has the lock. gocron skips the tick in this
	// process. Err matches redsync.ErrNoQuorum if too few nodes have answered. Otherwise it names what is wrong: minHold,
	// an option, the name of the job, or redsync.ErrClosed.
	NotLocked Kind = "not locked"

	// Lost: the lock of a running job, or the leadership, is lost, or nobody can tell whether it lasted until the job
	// ended. The job goes on nevertheless. Another process may run it meanwhile, or lead. Err matches
	// redsync.ErrLockAlreadyExpired, redsync.ErrLockLost or both.
	Lost Kind = "lost"

	// NotReleased: too few nodes have confirmed that a lock or the leadership is released, so others may have to wait
	// until it expires. They may skip a tick for that. The release goes on in the background.
	NotReleased Kind = "not released"

	// NotElected: an Elector cannot lead, and not because another process does. If Err matches redsync.ErrNoQuorum or
	// redsync.ErrDuplicateNode, the Elector goes on trying, and leads once the nodes allow that. Such a trouble is reported
	// once, however many attempts fail. After any other error the Elector has ended, and IsLeader returns this error.
	NotElected Kind = "not elected"
)

// An Event is something that gocron does not tell. A later version may add fields.
type Event struct {
	Kind Kind
	Name string // of the job, as gocron has it, or of the Elector
	Err  error  // never nil
}

// An Option configures a Locker or an Elector.
type Option func(*config)

type config struct {
	prefix string
	report func(Event)
	err    error // of the first option that cannot be used
}

// fail notes that an option cannot be used.
func (c *config) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// WithReport makes report hear of every Event. It may be called by many goroutines at once. It delays what it tells of,
// such as the next attempt of an Elector, so it should return soon. It must not call Elector.Shutdown or Redsync.Close.
// With nil, Lock and NewElector return an error.
//
// By default events are written to slog.Default: Lost as an error, all others as warnings.
func WithReport(report func(Event)) Option {
	return func(c *config) {
		if report == nil {
			c.fail(errors.New("redsyncgocron: WithReport(nil)"))
			return
		}
		c.report = report
	}
}

// WithPrefix puts a prefix before the name of each job, or of an Elector. The result is the name of the lock, its Redis
// key. Schedulers share their jobs only if they have the same prefix. The default is none: the lock of a job has the name
// of the job.
func WithPrefix(prefix string) Option {
	return func(c *config) { c.prefix = prefix }
}

func configured(options []Option) config {
	c := config{report: logged}
	for _, o := range options {
		if o == nil {
			c.fail(errors.New("redsyncgocron: an option is nil"))
			continue
		}
		o(&c)
	}
	return c
}

// logged is the default of WithReport. Without it, a locker that is never able to lock would be silent.
func logged(e Event) {
	log := slog.Warn
	if e.Kind == Lost {
		log = slog.Error
	}
	log("redsyncgocron: "+string(e.Kind), "name", e.Name, "error", e.Err)
}
