package safety

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// key is the lock of every scene.
const key = "scene"

// Scenes are all scenes. Each runs on nodes of its own.
var Scenes = []Scene{
	{"lock, extend, valid and unlock on five nodes", false, allWell},
	{"each of the 32 subsets of five nodes dead", true, everySubsetDead},
	{"two nodes dead: every operation at once", false, twoDead},
	{"one node frozen: every operation at once", false, frozen(1)},
	{"two nodes frozen: every operation at once", false, frozen(2)},
	{"two nodes freeze while the lock is held", false, freezeWhileHeld},
	{"three nodes frozen: TryLock fails in time and leaves no key", false, majorityFrozen},
	{"three nodes freeze while the lock is held: Valid and Unlock answer in time", false, majorityFreezesWhileHeld},
	{"context cancelled during the attempt leaves no key", false, cancelledAttempt},
	{"context cancelled at every point of an attempt leaves no key", true, cancelledAtEveryPoint},
	{"context cancelled before Unlock: the keys go all the same", false, cancelledUnlock},
	{"a cancelled Lock says so", false, cancelledLockSaysSo},
	{"reply to the acquire lost on a minority", true, lostAcquire(2)},
	{"reply to the acquire lost on a majority leaves no key and is not called taken", true, lostAcquire(3)},
	{"reply to the release lost on a majority is not called expired and leaves no key", true, lostRelease},
	{"straggler's SET lands after the rollback", true, stragglerAfterRollback},
	{"straggler's SET lands after Unlock", true, stragglerAfterUnlock},
	{"two slow nodes get their keys all the same", true, slowNodesJoin},
	{"extend confirmed after Until does not succeed", true, lateExtend},
	{"lock granted after its validity does not succeed", true, lateLock},
	{"Valid answered after Until is not true", true, lateValid},
	{"extend of a shorter expiry shortens no TTL", true, extendNeverShortens},
	{"extend after Unlock, with healing, resurrects nothing", false, noResurrectionAfterUnlock},
	{"extend after a loss, with healing, resurrects nothing", false, noResurrectionAfterLoss},
	{"extend after expiry fails, says expired and not taken", false, extendAfterExpiry},
	{"extend notices keys lost on a majority", false, extendNoticesLoss},
	{"Valid notices keys lost on a majority", false, validNoticesLoss},
	{"two nodes restart empty: the lock holds", false, minorityRestartsEmpty},
	{"unlock by another value deletes nothing", false, unlockByAnotherValue},
	{"one value for all locks of a process: no second holder", false, oneValue},
	{"hand-off by WithValue", false, handOff},
	{"Until is zero after Unlock; a second Unlock is an error", false, unlockTwice},
	{"unlock after expiry says so and leaves the next holder alone", false, unlockAfterExpiry},
	{"clocks of two nodes jump forward: no second holder", true, clocksJump},
	{"never two holders, with a minority failing at random under contention", true, neverTwoHolders},
}

var background = context.Background()

// expect returns an error if err is not nil or ok is false. The error begins with what.
func expect(what string, ok bool, err error) error {
	if !ok || err != nil {
		return fmt.Errorf("%s: %v, %v, want true, nil", what, ok, err)
	}
	return nil
}

// refuse returns an error if an operation succeeded, or failed without an error.
func refuse(what string, ok bool, err error) error {
	if ok || err == nil {
		return fmt.Errorf("%s: %v, %v, want false and an error", what, ok, err)
	}
	return nil
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// cycle locks, extends, checks and unlocks. Each operation must succeed at once.
func cycle(e *Env, m Mutex) error {
	steps := []struct {
		name string
		do   func() (bool, error)
	}{
		{"TryLock", func() (bool, error) { return true, m.TryLockContext(background) }},
		{"Extend", func() (bool, error) { return m.ExtendContext(background) }},
		{"Valid", func() (bool, error) { return m.ValidContext(background) }},
		{"Unlock", func() (bool, error) { return m.UnlockContext(background) }},
	}
	for _, step := range steps {
		var err error
		late := e.took(step.name, func() {
			ok, failure := step.do()
			err = expect(step.name, ok, failure)
		})
		if err := first(err, late); err != nil {
			return err
		}
	}
	return nil
}

func allWell(e *Env) error {
	m := e.Process().NewMutex(key, Options{})
	if err := m.TryLockContext(background); err != nil {
		return err
	}
	if left := time.Until(m.Until()); left <= 0 || left > 8*time.Second {
		return fmt.Errorf("Until is in %v", left)
	}
	if err := e.Process().NewMutex(key, Options{}).TryLockContext(background); err == nil {
		return errors.New("two holders")
	}
	ok, err := m.UnlockContext(background)
	return first(expect("Unlock", ok, err), e.Gone(key, time.Second), cycle(e, m), e.Gone(key, time.Second))
}

func everySubsetDead(e *Env) error {
	for mask := range 1 << N {
		dead := 0
		for i := range N {
			if mask>>i&1 == 1 {
				dead++
				e.Embedded[i].Kill()
			}
		}
		if err := subsetDead(e, dead); err != nil {
			return fmt.Errorf("dead %05b: %w", mask, err)
		}
		for i := range N {
			e.Embedded[i].Restart(false)
		}
		time.Sleep(time.Second) // a client that still tries to connect succeeds now
		if err := e.Gone(key, 2*time.Second); err != nil {
			return fmt.Errorf("dead %05b, restarted: %w", mask, err)
		}
	}
	return nil
}

// subsetDead goes through all operations. With a quorum alive all must succeed.
func subsetDead(e *Env, dead int) error {
	m := e.Process().NewMutex(key, Options{})
	err := m.TryLockContext(background)
	if N-dead < Quorum {
		return first(refuse("TryLock", err == nil, err), e.Gone(key, time.Second))
	}
	if err != nil {
		return fmt.Errorf("TryLock: %w", err)
	}
	extended, err1 := m.ExtendContext(background)
	valid, err2 := m.ValidContext(background)
	unlocked, err3 := m.UnlockContext(background)
	return first(expect("Extend", extended, err1), expect("Valid", valid, err2), expect("Unlock", unlocked, err3))
}

// meet runs a cycle while all nodes are up. The first lock of a process may wait until it knows the
// identity of every node; later locks need not.
func meet(e *Env, m Mutex) error {
	return first(cycle(e, m), e.Gone(key, time.Second))
}

func twoDead(e *Env) error {
	m := e.Process().NewMutex(key, Options{})
	if err := meet(e, m); err != nil {
		return err
	}
	e.Kill(1)
	e.Kill(3)
	if err := first(cycle(e, m), cycle(e, m)); err != nil {
		return err
	}
	e.Restart(1)
	e.Restart(3)
	return e.Gone(key, 2*time.Second)
}

func frozen(count int) func(*Env) error {
	return func(e *Env) error {
		m := e.Process().NewMutex(key, Options{})
		if err := meet(e, m); err != nil {
			return err
		}
		for i := range count {
			e.Freeze(i)
		}
		err := first(cycle(e, m), cycle(e, m))
		for i := range count {
			e.Thaw(i)
		}
		return first(err, e.Gone(key, time.Second))
	}
}

func freezeWhileHeld(e *Env) error {
	m := e.Process().NewMutex(key, Options{})
	if err := m.TryLockContext(background); err != nil {
		return err
	}
	e.Freeze(0)
	e.Freeze(4)
	var err error
	late := e.took("Extend, Valid and Unlock", func() {
		extended, err1 := m.ExtendContext(background)
		valid, err2 := m.ValidContext(background)
		unlocked, err3 := m.UnlockContext(background)
		err = first(expect("Extend", extended, err1), expect("Valid", valid, err2), expect("Unlock", unlocked, err3))
	})
	e.Thaw(0)
	e.Thaw(4)
	return first(err, late, e.Gone(key, time.Second))
}

// deadline is how long an operation may take if it has to wait for failed nodes: the node deadline of
// the default expiry (5 % of 8 s). On real servers, in real time, it only ends what would hang.
func deadline(e *Env) time.Duration {
	if e.Embedded == nil {
		return time.Minute
	}
	return 400 * time.Millisecond
}

func majorityFrozen(e *Env) error {
	m := e.Process().NewMutex(key, Options{})
	for i := range Quorum {
		e.Freeze(i)
	}
	var err error
	late := within("TryLock", deadline(e), func() {
		err = m.TryLockContext(background)
		err = refuse("TryLock", err == nil, err)
	})
	for i := range Quorum {
		e.Thaw(i)
	}
	return first(err, late, e.Gone(key, 2*time.Second))
}

func majorityFreezesWhileHeld(e *Env) error {
	m := e.Process().NewMutex(key, Options{})
	if err := m.TryLockContext(background); err != nil {
		return err
	}
	for i := range Quorum {
		e.Freeze(i)
	}
	var err1, err2 error
	late1 := within("Valid", deadline(e), func() {
		ok, err := m.ValidContext(background)
		err1 = refuse("Valid", ok, err)
	})
	late2 := within("Unlock", deadline(e), func() {
		ok, err := m.UnlockContext(background)
		err2 = refuse("Unlock", ok, err)
	})
	for i := range Quorum {
		e.Thaw(i)
	}
	return first(err1, late1, err2, late2, e.Gone(key, 2*time.Second))
}

func cancelledAttempt(e *Env) error {
	m := e.Process().NewMutex(key, Options{})
	for i := range Quorum {
		e.Freeze(i)
	}
	ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
	defer cancel()
	err := m.LockContext(ctx)
	for i := range Quorum {
		e.Thaw(i)
	}
	return first(refuse("Lock", err == nil, err), e.Gone(key, time.Second))
}

// cancelledAtEveryPoint makes the nodes answer 10, 20, ... 50 ms after the request, and cancels
// before, between and after the answers.
func cancelledAtEveryPoint(e *Env) error {
	p := e.Process()
	for at := 5 * time.Millisecond; at < 70*time.Millisecond; at += 10 * time.Millisecond {
		for i, n := range e.Embedded {
			n.On("set", 1, embedded.Fault{Delay: time.Duration(i+1) * 10 * time.Millisecond})
		}
		m := p.NewMutex(key, Options{Tries: 1})
		ctx, cancel := context.WithTimeout(background, at)
		err := m.LockContext(ctx)
		cancel()
		if err == nil {
			if ok, err := m.UnlockContext(background); !ok || err != nil {
				return expect("Unlock", ok, err)
			}
		}
		if err := e.Gone(key, 200*time.Millisecond); err != nil {
			return fmt.Errorf("cancelled after %v: %w", at, err)
		}
	}
	return nil
}

func cancelledUnlock(e *Env) error {
	m := e.Process().NewMutex(key, Options{})
	if err := m.TryLockContext(background); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, _ = m.UnlockContext(ctx) // may succeed or fail: a quorum may answer before Unlock sees the cancellation
	return e.Gone(key, time.Second)
}

func cancelledLockSaysSo(e *Env) error {
	p := e.Process()
	if err := p.NewMutex(key, Options{}).TryLockContext(background); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
	defer cancel()
	err := p.NewMutex(key, Options{}).LockContext(ctx)
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("Lock returned %v, want an error that is %v", err, context.DeadlineExceeded)
	}
	return nil
}

func lostAcquire(lost int) func(*Env) error {
	return func(e *Env) error {
		m := e.Process().NewMutex(key, Options{Tries: 1})
		for i := range lost {
			e.Embedded[i].On("set", 1, embedded.Fault{LoseReply: true})
			e.Embedded[i].On("evalsha", 1, embedded.Fault{LoseReply: true}) // with which the client asks again
		}
		err := m.LockContext(background)
		if lost <= N-Quorum {
			ok, err1 := m.UnlockContext(background)
			return first(err, expect("Unlock", ok, err1), e.Gone(key, 2*time.Second))
		}
		if err != nil && strings.Contains(err.Error(), "taken") {
			return fmt.Errorf("a lost reply is called taken: %w", err)
		}
		return first(refuse("Lock", err == nil, err), e.Gone(key, 2*time.Second))
	}
}

// warm returns a held Mutex of a process whose connections are open and whose scripts the nodes
// know, so that a fault hits the intended command.
func warm(e *Env, o Options) (Mutex, error) {
	m := e.Process().NewMutex(key, o)
	if err := first(cycle(e, m), e.Gone(key, time.Second)); err != nil {
		return nil, err
	}
	return m, m.TryLockContext(background)
}

func lostRelease(e *Env) error {
	m, err := warm(e, Options{})
	if err != nil {
		return err
	}
	for i := range Quorum {
		e.Embedded[i].On("evalsha", 1, embedded.Fault{LoseReply: true})
	}
	ok, err := m.UnlockContext(background)
	if !ok && err != nil && strings.Contains(err.Error(), "expired") {
		return fmt.Errorf("a lost reply is called expired: %w", err)
	}
	return e.Gone(key, 2*time.Second)
}

// lateSet makes node i close the connection that carries the next SET, and execute that SET after
// delay. A real server does the same if it is busy when the connection ends.
func lateSet(e *Env, i int, delay time.Duration) {
	e.Embedded[i].On("set", 1, embedded.Fault{LoseCommand: true, Then: func(args []string) {
		go func() {
			time.Sleep(delay)
			if e.Get(i, key) == "" {
				e.Set(i, key, args[1], 8*time.Second)
			}
		}()
	}})
}

func stragglerAfterRollback(e *Env) error {
	for i := range Quorum {
		e.Set(i, key, "other", time.Minute)
	}
	lateSet(e, 3, 120*time.Millisecond)
	m := e.Process().NewMutex(key, Options{Tries: 1})
	if err := m.LockContext(background); err == nil {
		return errors.New("Lock succeeded on a taken lock")
	}
	for i := range Quorum {
		e.Delete(i, key)
	}
	time.Sleep(130 * time.Millisecond)
	return e.Gone(key, 2*time.Second)
}

func stragglerAfterUnlock(e *Env) error {
	lateSet(e, 3, 120*time.Millisecond)
	m := e.Process().NewMutex(key, Options{})
	if err := m.TryLockContext(background); err != nil {
		return err
	}
	ok, err := m.UnlockContext(background)
	time.Sleep(130 * time.Millisecond)
	return first(expect("Unlock", ok, err), e.Gone(key, 2*time.Second))
}

func slowNodesJoin(e *Env) error {
	for i := range N - Quorum {
		e.Embedded[i].On("set", 1, embedded.Fault{Delay: 30 * time.Millisecond})
	}
	if err := e.Process().NewMutex(key, Options{}).TryLockContext(background); err != nil {
		return err
	}
	time.Sleep(50 * time.Millisecond)
	if held := e.Holding(key); held != N {
		return fmt.Errorf("%d of %d nodes hold the key", held, N)
	}
	return nil
}

// delayAll makes every node take delay for the next execution of command.
func delayAll(e *Env, command string, delay time.Duration) {
	for _, n := range e.Embedded {
		n.On(command, 1, embedded.Fault{Delay: delay})
	}
}

func lateExtend(e *Env) error {
	m, err := warm(e, Options{Expiry: time.Second})
	if err != nil {
		return err
	}
	time.Sleep(900 * time.Millisecond)
	// The nodes extend the keys before they expire, but the replies of four arrive after Until.
	e.Embedded[0].On("evalsha", 1, embedded.Fault{Delay: 50 * time.Millisecond})
	for range 2 { // the client may ask again on another connection
		delayAll(e, "evalsha", 95*time.Millisecond)
	}
	ok, err := m.ExtendContext(background)
	return refuse("Extend", ok, err)
}

func lateLock(e *Env) error {
	m := e.Process().NewMutex(key, Options{Expiry: time.Second, Tries: 1})
	delayAll(e, "set", 2*time.Second)
	err := m.LockContext(background)
	return first(refuse("Lock", err == nil, err), e.Gone(key, 5*time.Second))
}

func lateValid(e *Env) error {
	m := e.Process().NewMutex(key, Options{Expiry: time.Second})
	if err := m.TryLockContext(background); err != nil {
		return err
	}
	time.Sleep(950 * time.Millisecond)
	// The nodes look while the keys are there and answer when Until has passed.
	delayAll(e, "get", 45*time.Millisecond)
	delayAll(e, "evalsha", 45*time.Millisecond)
	ok, err := m.ValidContext(background)
	return refuse("Valid", ok, err)
}

func extendNeverShortens(e *Env) error {
	p := e.Process()
	m := p.NewMutex(key, Options{Expiry: 8 * time.Second})
	if err := m.TryLockContext(background); err != nil {
		return err
	}
	_, _ = p.NewMutex(key, Options{Expiry: 500 * time.Millisecond, Value: m.Value()}).ExtendContext(background)
	time.Sleep(time.Second)
	if !time.Now().Before(m.Until()) {
		return errors.New("the hold has ended")
	}
	if err := e.Process().NewMutex(key, Options{Tries: 1}).TryLockContext(background); err == nil {
		return errors.New("two holders: the TTL was shortened under the first")
	}
	return nil
}

func noResurrectionAfterUnlock(e *Env) error {
	m := e.Process().NewMutex(key, Options{Heal: true})
	if err := m.TryLockContext(background); err != nil {
		return err
	}
	if ok, err := m.UnlockContext(background); !ok || err != nil {
		return expect("Unlock", ok, err)
	}
	ok, err := m.ExtendContext(background)
	return first(refuse("Extend", ok, err), e.Gone(key, time.Second))
}

func noResurrectionAfterLoss(e *Env) error {
	a := e.Process().NewMutex(key, Options{Expiry: e.brief(500 * time.Millisecond), Heal: true})
	if err := a.TryLockContext(background); err != nil {
		return err
	}
	time.Sleep(e.brief(600 * time.Millisecond))
	if err := cycle(e, e.Process().NewMutex(key, Options{})); err != nil {
		return fmt.Errorf("the next holder: %w", err)
	}
	ok, err := a.ExtendContext(background)
	return first(refuse("Extend", ok, err), e.Gone(key, time.Second))
}

func extendAfterExpiry(e *Env) error {
	m := e.Process().NewMutex(key, Options{Expiry: e.brief(300 * time.Millisecond)})
	if err := m.TryLockContext(background); err != nil {
		return err
	}
	time.Sleep(e.brief(400 * time.Millisecond))
	ok, err := m.ExtendContext(background)
	if err := refuse("Extend", ok, err); err != nil {
		return err
	}
	if text := err.Error(); strings.Contains(text, "taken") || !strings.Contains(text, "expired") {
		return fmt.Errorf("Extend of an expired lock, taken by nobody, says: %w", err)
	}
	return nil
}

func loseMajority(e *Env) (Mutex, error) {
	m := e.Process().NewMutex(key, Options{})
	if err := m.TryLockContext(background); err != nil {
		return nil, err
	}
	// Wait until all five nodes have the key, so that no late SET brings back a deleted one.
	for end := time.Now().Add(time.Second + e.Soon()); e.Holding(key) < N && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	for i := range Quorum {
		e.Delete(i, key)
	}
	return m, nil
}

func extendNoticesLoss(e *Env) error {
	m, err := loseMajority(e)
	if err != nil {
		return err
	}
	ok, err := m.ExtendContext(background)
	return refuse("Extend", ok, err)
}

func validNoticesLoss(e *Env) error {
	m, err := loseMajority(e)
	if err != nil {
		return err
	}
	ok, err := m.ValidContext(background)
	return refuse("Valid", ok, err)
}

func minorityRestartsEmpty(e *Env) error {
	m := e.Process().NewMutex(key, Options{})
	if err := m.TryLockContext(background); err != nil {
		return err
	}
	for end := time.Now().Add(time.Second + e.Soon()); e.Holding(key) < N && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	for _, i := range []int{1, 2} {
		e.Kill(i)
		e.Restart(i)
	}
	err := e.Process().NewMutex(key, Options{Tries: 1}).TryLockContext(background)
	if err == nil {
		return errors.New("two holders")
	}
	extended, err1 := m.ExtendContext(background)
	unlocked, err2 := m.UnlockContext(background)
	return first(expect("Extend", extended, err1), expect("Unlock", unlocked, err2), e.Gone(key, 2*time.Second))
}

func unlockByAnotherValue(e *Env) error {
	p := e.Process()
	m := p.NewMutex(key, Options{})
	if err := m.TryLockContext(background); err != nil {
		return err
	}
	ok, err := p.NewMutex(key, Options{Value: "another"}).UnlockContext(background)
	if err := refuse("Unlock by another value", ok, err); err != nil {
		return err
	}
	extended, err := m.ExtendContext(background)
	if err := expect("Extend", extended, err); err != nil {
		return err
	}
	ok, err = m.UnlockContext(background)
	return expect("Unlock", ok, err)
}

func oneValue(e *Env) error {
	p, value := e.Process(), fmt.Sprint(rand.Uint64()) // which no scene beside this one has
	try := func(name string) (Mutex, error) {
		m := p.NewMutex(name, Options{Generated: value})
		return m, m.TryLockContext(background)
	}
	holder, err := try(key)
	if err != nil {
		return err
	}
	for range 2 { // the rollback of the first may delete the holder's keys
		if _, err := try(key); err == nil {
			return errors.New("two holders")
		}
	}
	_, other := try(key + " 2")
	extended, err1 := holder.ExtendContext(background)
	unlocked, err2 := holder.UnlockContext(background)
	again, err3 := try(key)
	if err := first(other, expect("Extend", extended, err1), expect("Unlock", unlocked, err2), err3); err != nil {
		return err
	}
	unlocked, err = again.UnlockContext(background)
	return expect("Unlock again", unlocked, err)
}

func handOff(e *Env) error {
	a := e.Process().NewMutex(key, Options{})
	if err := a.TryLockContext(background); err != nil {
		return err
	}
	b := e.Process().NewMutex(key, Options{Value: a.Value()})
	extended, err1 := b.ExtendContext(background)
	valid, err2 := b.ValidContext(background)
	left := time.Until(b.Until())
	unlocked, err3 := b.UnlockContext(background)
	if left <= 0 {
		return fmt.Errorf("Until is in %v after Extend took over", left)
	}
	return first(expect("Extend", extended, err1), expect("Valid", valid, err2), expect("Unlock", unlocked, err3),
		e.Gone(key, time.Second), e.Process().NewMutex(key, Options{}).TryLockContext(background))
}

func unlockTwice(e *Env) error {
	m := e.Process().NewMutex(key, Options{})
	if err := m.TryLockContext(background); err != nil {
		return err
	}
	ok, err := m.UnlockContext(background)
	again, errAgain := m.UnlockContext(background)
	if until := m.Until(); !until.IsZero() {
		return fmt.Errorf("Until is %v after Unlock", until)
	}
	return first(expect("Unlock", ok, err), refuse("second Unlock", again, errAgain))
}

func unlockAfterExpiry(e *Env) error {
	a := e.Process().NewMutex(key, Options{Expiry: e.brief(300 * time.Millisecond)})
	if err := a.TryLockContext(background); err != nil {
		return err
	}
	time.Sleep(e.brief(400 * time.Millisecond))
	b := e.Process().NewMutex(key, Options{})
	if err := b.TryLockContext(background); err != nil {
		return fmt.Errorf("the next holder: %w", err)
	}
	ok, err := a.UnlockContext(background)
	if err := refuse("Unlock after expiry", ok, err); err != nil {
		return err
	}
	if !strings.Contains(err.Error(), "expired") {
		return fmt.Errorf("Unlock of an expired lock says: %w", err)
	}
	valid, err := b.ValidContext(background)
	return expect("the next holder's Valid", valid, err)
}

func clocksJump(e *Env) error {
	m := e.Process().NewMutex(key, Options{})
	if err := m.TryLockContext(background); err != nil {
		return err
	}
	time.Sleep(time.Second)
	for i := range N - Quorum {
		e.Embedded[i].FastForward(time.Hour)
	}
	if err := e.Process().NewMutex(key, Options{Tries: 1}).TryLockContext(background); err == nil {
		return errors.New("two holders")
	}
	valid, err := m.ValidContext(background)
	return expect("Valid", valid, err)
}

// neverTwoHolders lets eight processes contend while one or two nodes at a time freeze, die or
// lose replies. It fails if two of the processes believe at the same time that they hold the lock.
func neverTwoHolders(e *Env) error {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a repeatable schedule
	ctx, cancel := context.WithTimeout(background, 30*time.Second)
	defer cancel()
	var log holdLog
	var wg sync.WaitGroup
	for range 8 {
		m := e.Process().NewMutex(key, Options{Expiry: time.Second, Tries: 4})
		work := time.Duration(20+r.IntN(400)) * time.Millisecond
		wg.Go(func() { log.contend(ctx, m, work) })
	}
	for ctx.Err() == nil {
		disturb(e, r)
	}
	wg.Wait()
	if log.count < 20 {
		return fmt.Errorf("only %d acquisitions", log.count)
	}
	return first(log.err, e.Gone(key, 3*time.Second))
}

// disturb makes one or two nodes fail for a while.
func disturb(e *Env, r *rand.Rand) {
	victims := r.Perm(N)[:1+r.IntN(N-Quorum)]
	kind := r.IntN(3)
	for _, i := range victims {
		switch kind {
		case 0:
			e.Embedded[i].Freeze()
		case 1:
			e.Embedded[i].Kill()
		case 2:
			e.Embedded[i].On("set", 3, embedded.Fault{LoseReply: true})
			e.Embedded[i].On("evalsha", 3, embedded.Fault{LoseReply: true})
		}
	}
	time.Sleep(time.Duration(10+r.IntN(3000)) * time.Millisecond)
	for _, i := range victims {
		e.Embedded[i].Thaw()
		e.Embedded[i].Restart(false)
	}
	time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
}

// A holdLog records which Mutex claims to hold the lock.
type holdLog struct {
	mu     sync.Mutex
	holder Mutex
	count  int
	err    error
}

func (l *holdLog) contend(ctx context.Context, m Mutex, work time.Duration) {
	for ctx.Err() == nil {
		if m.LockContext(ctx) != nil {
			continue
		}
		l.enter(m)
		time.Sleep(work)
		if ok, _ := m.ExtendContext(ctx); ok {
			l.enter(m)
			time.Sleep(work)
		}
		l.leave(m)
		_, _ = m.UnlockContext(ctx) // m is not held now, whatever Unlock returns
	}
}

// enter notes that m is held, unless its Until has passed.
func (l *holdLog) enter(m Mutex) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(m.Until()) {
		return
	}
	if l.holder != nil && l.holder != m && time.Now().Before(l.holder.Until()) && l.err == nil {
		l.err = fmt.Errorf("two holders: one until %v, the next until %v", l.holder.Until(), m.Until())
	}
	l.holder = m
	l.count++
}

func (l *holdLog) leave(m Mutex) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == m {
		l.holder = nil
	}
}
