package redsync

import (
	"errors"
	"time"
)

// This file has the option of a minimal hold, and what it excludes. internal/lease makes the keys stay.

// WithMinHold makes the nodes keep the lock for at least d, counted from before the first request of the attempt
// that acquired it. If d has passed, Unlock and Close release the lock as usual. If not, they let the keys stay for
// the rest of d. If the holder crashes, or loses the lock, the keys stay for at least d as well. The default is off.
// d must be more than 0, and together with its drift (d * 0.01 + 2 ms by default) at most 292 years. With
// pool.WithRestartGuard it must also fit into the limit of the guard.
//
// It is for jobs that several processes start at the same time, by a schedule. With TryDo, at most one process runs
// the job at each tick, even if the clock of another process is behind and its call comes after the job has ended.
// For that, d must be longer than the greatest difference between the start times of the processes. d plus its drift
// must be shorter than the time between two ticks: see docs/cron.md. A long d tolerates clocks that differ more. With
// a short d another process can lock sooner after a crash.
//
// The option changes neither Until nor what Unlock returns. A failed attempt releases its keys at once. After Unlock, a
// Lock of the name waits until d has passed, also in the same process and with the same Mutex. Redsync.Current asks
// only whether the nodes have the keys. So while the keys stay, it still says that a Sequencer of the hold is current.
// A process that adopts the hold by its Sequencer (WithSequencer) knows nothing of d, so its Unlock frees the lock at
// once.
//
// Locks with this option are not handed over within the process (WithHandOver), and cannot be detached or downgraded.
// WithMinHold excludes WithShared, WithValue and WithSequencer: with any of these, every operation fails. The idea is
// that of ShedLock's lockAtLeastFor.
func WithMinHold(d time.Duration) Option {
	return OptionFunc(func(m *Mutex) {
		if d <= 0 {
			m.change().fail(outOfRange("WithMinHold", d, "more than 0"))
		}
		m.change().minHold = d
	})
}

// The errors of what WithMinHold excludes.
var (
	errMinHoldShared    = errors.New("redsync: WithMinHold excludes WithShared: only an exclusive lock or a permit can stay after Unlock")
	errMinHoldValue     = errors.New("redsync: WithMinHold excludes WithValue: it is not known when the adopted lock was acquired")
	errMinHoldSequencer = errors.New("redsync: WithMinHold excludes WithSequencer: it is not known when the adopted lock was acquired")
	errMinHoldDetach    = errors.New("redsync: a lock with WithMinHold cannot be detached: its receiver does not know when it was acquired")
)

// checkMinHold returns an error if WithMinHold does not go together with the other settings.
func (s *settings) checkMinHold() error {
	switch {
	case s.minHold == 0:
		return nil
	case s.value != "":
		return errMinHoldValue
	case s.sequencer.Value != "":
		return errMinHoldSequencer
	case s.shared:
		return errMinHoldShared
	}
	return nil
}
