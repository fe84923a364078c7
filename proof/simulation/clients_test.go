package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file plays the clients of a simulation.

// simNodeTimeout is the shortest node deadline that the library sets by default.
const simNodeTimeout = 50 * time.Millisecond

// A simClient locks on a goroutine of its own, one term after the other.
type simClient struct {
	player
	former *simTerm // the last term, if its Mutex may be used again
	shown  int      // numbers the clients that adopt or join its holds, for their names
}

func (c *simClient) run() {
	for !c.over() {
		c.pause(0, c.idles())
		c.lock()
	}
}

// mostly returns 1 in a simulation of a class, otherwise n: one in so many clients does something.
func (c *simClient) mostly(class string, n int) int {
	if c.class[class] {
		return 1
	}
	return n
}

// A simTerm is a term of a client.
type simTerm struct {
	*redsync.Mutex
	client  *simClient
	process *process
	number  int
	expiry  time.Duration
	drawn   drawnOptions
	options []redsync.Option
	owner   string           // WithOwner
	own     *redsync.Redsync // the term's own, if it does not use that of the process
	leads   bool             // it is a term of Lead
	within  bool             // the client holds the lock within a function
	keeps   time.Duration    // WithMinHold
	shares  string           // the ID of the term whose hold it has adopted or joined; "": it has its own
	shown   atomic.Bool      // others may have its value
	shared  atomic.Bool      // it reads: from the start, or since a downgrade
	done    chan struct{}    // closed when the client no longer believes that it holds
}

// drawnOptions are the options that decide what a client may do in a term.
type drawnOptions struct {
	watched, limited bool // WithWatchdog, WithMaxHold
	once             bool // TryLock
	unhurried        bool // WithFailFast(false): an extension confirmed in time may return after the old Until
	heals            bool // WithSetNXOnExtend: no other client may unlock while this one holds
	fences           bool // WithFencing
	reads            bool // WithShared
	unjoined         bool // an option keeps readers of the process from sharing the hold
	alone            bool // of an adopted hold: nobody else has its value
	defaults         bool // it waits with the default retry delays
	permits, weight  int  // WithPermits and WithWeight; 0 and 0 for a lock
}

// options draws the options of a term. adopted says that the term adopts a hold. The caller adds WithFencing.
func (c *simClient) options(adopted bool) (options []redsync.Option, expiry time.Duration, drawn drawnOptions) {
	pick := func(n int, option redsync.Option) bool {
		picked := c.oneIn(n)
		if picked {
			options = append(options, option)
		}
		return picked
	}
	expiry = c.expiry
	if c.realm != tidy && c.oneIn(5) {
		expiry = between(c.random, 40*time.Millisecond, 400*time.Millisecond)
	}
	tries := c.random.IntN(6)
	options = c.inTurn(expiry, redsync.WithTries(tries))
	if c.realm == guarded {
		options = append(options, redsync.WithHooks(&observe.Hooks{Vote: c.countsNoneTooYoung}))
	}
	delays := pick(2, redsync.WithRetryDelayFunc(func(int) time.Duration { return 20*time.Millisecond + c.jitter(100*time.Millisecond) }))
	if c.class[unpolled] {
		options, delays = append(options, c.polls()...), false
	}
	if value := fmt.Sprint("process ", c.process); c.class[constants] && !adopted {
		options = append(options, redsync.WithGenValueFunc(func() (string, error) { return value, nil }))
	}
	drawn.fences = c.fencing || c.oneIn(5)
	drawn.watched = pick(4, redsync.WithWatchdog())
	drawn.limited = pick(6, redsync.WithMaxHold(between(c.random, expiry/2, 3*expiry)))
	drawn.once = c.oneIn(8)
	drawn.defaults = tries != 1 && !delays && !drawn.once
	pick(4, redsync.WithPriority(c.random.IntN(3)-1))
	drawn.unjoined = pick(c.mostly(shorter, 4), redsync.WithHandOver(false)) || drawn.fences || drawn.limited
	drawn.unhurried = pick(6, redsync.WithFailFast(false))
	drawn.heals = !adopted && pick(5, redsync.WithSetNXOnExtend())
	if c.realm != tidy {
		pick(8, redsync.WithLockDelay(between(c.random, 0, 90*time.Millisecond)))
	}
	return options, expiry, drawn
}

func (t *simTerm) event(kind history.Kind) history.Event {
	names := t.Names()
	return history.Event{
		At: t.client.now(), Kind: kind, Client: t.client.name, Term: t.number, Name: names[0], More: names[1:], Shares: t.shares,
		Reads: t.shared.Load(), Leads: t.leads, Within: t.within, Keeps: t.keeps,
	}
}

// hasSeveral reports whether the term locks several names. Nobody adopts such a lock.
func (t *simTerm) hasSeveral() bool { return len(t.Names()) > 1 }

// note notes an event of a term. After the process has ended it notes nothing. So what the client was last promised
// lasts to its Until.
func (t *simTerm) note(kind history.Kind, err error) {
	if t.process.hasEnded() {
		return
	}
	e := t.event(kind)
	switch kind {
	case history.Held:
		e.Permits, e.Weight = t.drawn.permits, t.drawn.weight
		if t.shares == "" { // otherwise the token is that of the giver
			e.Token = t.Fence()
		}
		fallthrough
	case history.Extended:
		e.Until = e.At + t.Remaining()
		if t.shown.Load() || t.shares != "" {
			t.client.given(t.client.process, e.Until-e.At)
		}
	}
	e.Err = errorOf(err)
	t.client.log.Note(t.tellForcers(t.tellLookers(e)))
}

// lock plays one term, or a campaign.
func (c *simClient) lock() {
	switch {
	case c.class[leaders] && c.oneIn(3):
		c.lead()
		return
	case c.class[ticks] && c.oneIn(c.mostly(closing, 3)):
		c.tick()
		return
	}
	t := c.begin()
	ctx, cancel := t.patience()
	defer cancel()
	t.note(history.Call, nil)
	if t.takesAny(ctx) {
		return
	}
	if c.class[nesting] && t.own == nil && c.oneIn(2) ||
		(c.class[hurry] || c.class[readers] || t.drawn.permits != 0) && t.own == nil && !t.hasSeveral() && c.oneIn(4) {
		t.do(ctx)
		return
	}
	defer t.close()
	t.waits()
	if err := t.try(ctx); err != nil {
		t.note(history.Refused, err)
		c.former = t
		return
	}
	c.former = nil
	t.note(history.Held, nil)
	t.checkHandedOver()
	t.checkOwner()
	t.work()
}

// checkHandedOver checks that a process hands a lock or a permit over to its own clients, or shares it among its
// readers, only for a short time, because other processes may wait for it.
func (t *simTerm) checkHandedOver() {
	if t.client.class[constants] {
		return // it is never handed over, and has the value of earlier holds
	}
	first, passed := t.client.acquired.LoadOrStore(fortests.Value(t.Mutex), t.client.now())
	if passed && t.shared.Load() {
		t.client.together.Add(1)
	}
	assert.LessOrEqual(t.client, t.client.now()-first.(time.Duration), min(t.expiry/10, 20*time.Millisecond), "handed over for so long")
}

// checkOwner checks that the value of a lock says the owner that its Mutex has, however the Mutex got the lock.
func (t *simTerm) checkOwner() {
	if value := fortests.Value(t.Mutex); value != "" { // otherwise it is over
		owner, _ := script.OwnerOf(value)
		assert.Equal(t.client, t.owner, owner.Label)
	}
}

// countsNoneTooYoung checks that no grant of a node counts soon after the node has restarted:
// the node may have forgotten what it had granted before.
func (s *simulation) countsNoneTooYoung(_ context.Context, v observe.Vote) {
	restarted := time.Duration(s.restarted[v.Node].Load())
	asked, granted := s.now()-v.Took, v.Err == nil && !v.Late && (v.Op == "lock" || v.Op == "extend")
	if granted && restarted > 0 && asked > restarted {
		assert.Greater(s, s.now()-restarted, s.longest, "%s of %q counts on node %d", v.Op, v.Name, v.Node)
	}
}

// newTerm returns a term of c, the next one.
func (c *simClient) newTerm(p *process, expiry time.Duration) *simTerm {
	c.term++
	return &simTerm{client: c, number: c.term, process: p, expiry: expiry, done: make(chan struct{})}
}

// begin begins a term, with a new Mutex or with that of the last term.
func (c *simClient) begin() *simTerm {
	t := c.newTerm(nil, 0)
	if former := c.former; former != nil && c.oneIn(3) {
		t.Mutex, t.expiry, t.drawn, t.own, t.options = former.Mutex, former.expiry, former.drawn, former.own, former.options
		t.process, t.owner = former.process, former.owner
		t.shared.Store(t.drawn.reads)
		return t
	}
	c.former = nil
	var options []redsync.Option
	options, t.expiry, t.drawn = c.options(false)
	t.process = c.current(c.process)
	rs := t.process.Redsync
	if c.class[requests] && c.oneIn(2) {
		t.own = t.process.request()
		rs = t.own
	} else if c.class[native] && (c.few() || c.realm == rough && c.oneIn(2)) {
		t.process = c.mortal()
		rs = t.process.Redsync
	}
	names := c.someNames(c.random)
	if c.class[readers] && len(names) == 1 && c.oneIn(2) {
		options = t.read(options)
	}
	if c.class[permits] && len(names) == 1 && !t.drawn.reads && (c.oneIn(2) || c.asked.mistake == counted) {
		options = t.wantPermits(options)
	}
	if t.drawn.fences {
		options = append(options, redsync.WithFencing())
	}
	if c.class[owners] && c.term%3 != 0 {
		t.owner = fmt.Sprint("worker ", c.term%3)
		options = append(options, redsync.WithOwner(t.owner))
	}
	options = t.labels(options)
	t.shared.Store(t.drawn.reads)
	t.options = options
	t.Mutex = newMutex(rs, names, options)
	return t
}

// read makes t a term of a reader. It gets the options of t so far, and returns those that t uses. Often these are the
// options of alike, so that the readers of a process can share a hold. Otherwise the expiry may be another one.
func (t *simTerm) read(options []redsync.Option) []redsync.Option {
	c := t.client
	switch {
	case !c.class[shorter] && c.oneIn(2): // nobody extends elsewhere what readers share
		t.expiry, t.drawn = c.expiry, drawnOptions{heals: c.healing, defaults: true}
		options = c.alike()
		if t.drawn.watched = c.oneIn(3); t.drawn.watched {
			options = append(options, redsync.WithWatchdog())
		}
	case c.realm != tidy && c.oneIn(2):
		t.expiry = between(c.random, 40*time.Millisecond, 400*time.Millisecond)
		options = append(options, redsync.WithExpiry(t.expiry), redsync.WithShared())
	default:
		options = append(options, redsync.WithShared())
	}
	t.drawn.reads = true
	return options
}

// close closes the term's own Redsync, if there is one, or leaves it open. In the tidy realm it never
// closes one, because Close may leave keys to expire and the checks of that realm allow none.
func (t *simTerm) close() {
	c := t.client
	if t.own == nil || c.realm == tidy || c.oneIn(2) {
		return
	}
	if c.former == t {
		c.former = nil
	}
	var err error
	if t.Remaining() > 0 { // Close unlocks
		t.note(history.Unlock, nil)
		defer func() { t.note(history.Unlocked, err) }()
	}
	ctx, cancel := t.patience()
	defer cancel()
	if failed := t.own.Close(ctx); c.class[lookers] { // nodes may be away
		err = failed
	}
}

// do plays a term within Do.
func (t *simTerm) do(ctx context.Context) {
	c, held := t.client, false
	c.former = nil
	t.drawn.watched = true
	t.process = c.current(c.process)
	m := newMutex(t.process.Redsync, t.Names(), t.options)
	if t.drawn.reads && c.oneIn(3) {
		t.owner = ""
		m, t.expiry, t.drawn = t.process.reader(t.Name()), c.expiry, drawnOptions{watched: true, reads: true, heals: c.healing, defaults: true}
	}
	if t.drawn.permits != 0 && c.oneIn(3) {
		t.owner = ""
		m, t.expiry, t.drawn = t.process.permitsOf(t.Name()), c.expiry, t.process.wantsPermits()
	}
	t.waits()
	err := m.Do(ctx, func(ctx context.Context) error {
		held = true
		t.Mutex = redsync.FromContext(ctx)
		t.note(history.Held, nil)
		t.checkHandedOver()
		t.checkOwner()
		c.follow(t, t.Lost())
		c.heeds(ctx, t)
		nested := t.nest(ctx, 1)
		for range c.random.IntN(3) {
			c.pause(0, min(t.expiry/2, 60*time.Millisecond))
			switch {
			case t.mayDowngrade() && c.oneIn(3):
				t.downgrade()
			case t.drawn.reads && c.oneIn(3):
				t.upgrade(ctx)
			default:
				t.extend()
			}
		}
		close(t.done)
		if nested { // the joined calls go on with the hold
			t.note(history.Gave, nil)
		} else {
			t.note(history.Unlock, nil)
		}
		return nil
	})
	if !held {
		assert.Error(c, err)
		t.note(history.Refused, err)
		return
	}
	t.note(history.Unlocked, err)
}

func (t *simTerm) try(ctx context.Context) error {
	if t.drawn.once {
		return t.TryLockContext(ctx)
	}
	return t.LockContext(ctx)
}

// patience returns a context that ends when the client stops waiting.
func (t *simTerm) patience() (context.Context, context.CancelFunc) {
	c := t.client
	most := time.Second
	switch {
	case c.class[hurry] && c.oneIn(3): // shorter than any node deadline
		most = []time.Duration{1, 4 * time.Millisecond, simNodeTimeout / 4}[c.random.IntN(3)]
	case c.few():
		most = 3 * time.Second
	case c.oneIn(4):
		most = 20 * time.Millisecond
	}
	return t.process.call(between(c.random, 0, most))
}

// work plays what a client does with a lock.
func (t *simTerm) work() {
	c := t.client
	longest := t.expiry / 2
	if c.realm == tidy {
		longest = 60 * time.Millisecond
	}
	c.follow(t, t.Lost())
	steps := c.random.IntN(4)
	switch {
	case t.shares != "": // longer than the giver would have held it
		steps *= 2
	case t.mayShow() && c.oneIn(3):
		t.show(t.proof(), false)
	}
	for range steps {
		c.pause(0, longest)
		t.step()
	}
	if c.class[fast] {
		c.pause(0, max(1, 2*t.Remaining()))
	}
	if c.few() {
		c.pause(0, 400*time.Millisecond)
	}
	t.staysForLong()
	mayStay := c.realm != tidy
	switch kind := c.random.IntN(12); {
	case kind == 0 && mayStay && (!t.drawn.watched || t.drawn.limited): // it goes without unlocking
		return
	case kind == 1 && mayStay: // it stays for too long
		c.pause(t.expiry/2, 2*t.expiry)
	case t.own != nil: // its Close would unlock a hold that was given away
	case t.hasSeveral():
	case (kind == 2 || kind < 6 && c.class[values]) && !c.class[constants]:
		t.giveAway()
		return
	}
	t.end()
}

// step plays one step of a holder.
func (t *simTerm) step() {
	c := t.client
	if t.mayDowngrade() && c.oneIn(3) {
		t.downgrade()
		return
	}
	if c.class[shorter] && !t.hasSeveral() && c.oneIn(2) {
		t.extendElsewhere()
		c.pause(0, max(1, t.Remaining()))
		return
	}
	switch c.random.IntN(4) {
	case 0, 1:
		t.extend()
	case 2:
		ctx, cancel := c.Context(), context.CancelFunc(func() {})
		if c.class[hurry] {
			ctx, cancel = t.patience()
		}
		_, _ = t.ValidContext(ctx)
		cancel()
	case 3:
		if c.realm != tidy && !t.hasSeveral() && c.oneIn(3) {
			t.extendElsewhere()
		} else if t.mayShow() {
			t.show(t.Sequencer(), false)
		}
	}
}

// extend extends the hold, at once or so close to Until that the answer may come too late.
func (t *simTerm) extend() {
	c := t.client
	if c.realm != tidy && c.oneIn(3) {
		time.Sleep(max(0, t.Remaining()-between(c.random, 0, 4*c.base)))
	}
	ctx, cancel := t.patience()
	defer cancel()
	until := c.now() + t.Remaining()
	ok, err := t.ExtendContext(ctx)
	if !ok {
		assert.Error(c, err)
		return
	}
	t.goesOn(until)
}

// goesOn notes an extension, which must have come before the old end.
func (t *simTerm) goesOn(until time.Duration) {
	c := t.client
	if c.clocks != "wall" && !t.drawn.watched && !t.drawn.unhurried {
		assert.LessOrEqual(c, c.now(), until, "%s #%d goes on although it had ended", c.name, t.number)
	}
	t.note(history.Extended, nil)
}

// mayDowngrade reports whether a client may make its lock shared. It may not if another client may have the value,
// because that client relies on an exclusive lock.
func (t *simTerm) mayDowngrade() bool {
	return t.client.class[readers] && !t.hasSeveral() && t.drawn.permits == 0 && !t.shared.Load() && !t.shown.Load() && (t.shares == "" || t.drawn.alone)
}

// downgrade makes an exclusive lock shared. From the call on the client believes in a shared lock. After the process
// has ended there is no downgrade, because note would not record it. extendElsewhere could then make the lock shared on
// the nodes while it is exclusive in the history.
func (t *simTerm) downgrade() {
	c := t.client
	if t.process.hasEnded() {
		return
	}
	ctx, cancel := t.patience()
	defer cancel()
	until := c.now() + t.Remaining()
	t.note(history.Downgrade, nil)
	t.shared.Store(true)
	if c.asked.mistake == inTwoSteps {
		_, _ = t.process.NewMutex(t.Name(), redsync.WithValue(fortests.Value(t.Mutex))).UnlockContext(c.Context())
	}
	if err := t.Downgrade(ctx); err != nil {
		return
	}
	t.goesOn(until)
}

// upgrade locks exclusively a name that the Do around it holds shared. That must fail.
func (t *simTerm) upgrade(ctx context.Context) {
	m := t.process.NewMutex(t.Name(), t.client.lasting(t.expiry)...)
	err := m.LockContext(ctx)
	if t.Remaining() > 0 {
		assert.ErrorIs(t.client, err, redsync.ErrNested)
	}
	if err == nil { // the Do had lost its lock
		_, _ = m.Unlock()
	}
}

// extendElsewhere lets another process extend the lock by its value, for a shorter time.
// That must not shorten the hold of t.
func (t *simTerm) extendElsewhere() {
	c := t.client
	other := (c.process + 1) % simProcesses
	least, most := min(30*time.Millisecond, t.expiry-1), t.expiry
	if c.class[shorter] {
		most = least + 5*time.Millisecond
	}
	expiry := between(c.random, least, most)
	m := c.current(other).NewMutex(t.Name(), c.lasting(expiry, t.adopts(t.proof()))...)
	c.given(other, expiry)
	ctx, cancel := t.patience()
	defer cancel()
	_, _ = m.ExtendContext(ctx)
	c.given(other, expiry)
}

// proof returns what another process needs to adopt the hold.
func (t *simTerm) proof() redsync.Sequencer {
	if t.shared.Load() || t.drawn.permits != 0 {
		return t.Sequencer()
	}
	return redsync.Sequencer{Value: t.Value()}
}

// adopts returns the option with which a Mutex adopts a hold like that of t.
func (t *simTerm) adopts(given redsync.Sequencer) redsync.Option {
	if t.shared.Load() || t.drawn.permits != 0 {
		return redsync.WithSequencer(given)
	}
	return redsync.WithValue(given.Value)
}

// given notes that a process may have a hold whose value a client elsewhere also has, for the duration lasts. Until
// then the simulation does not close the process, because that would unlock the shared hold.
func (s *simulation) given(process int, lasts time.Duration) {
	if s.clocks == "wall" {
		lasts += s.longest // the timer at the end of a hold may be late: see rules
	}
	until := &s.givenUntil[process]
	until.Store(max(until.Load(), int64(s.now()+lasts)))
}

// end unlocks.
func (t *simTerm) end() {
	c := t.client
	ctx, cancel := c.Context(), context.CancelFunc(func() {})
	switch {
	case c.class[hurry] && c.oneIn(2):
		ctx, cancel = t.patience()
	case c.oneIn(6):
		ctx, cancel = context.WithTimeout(ctx, between(c.random, 0, 5*time.Millisecond))
	}
	defer cancel()
	close(t.done)
	err := t.unlock(ctx)
	assert.Error(c, t.Err())
	if c.former = t; t.process.mortal && err == nil {
		c.former = nil
		t.process.stop()
	}
}

func (t *simTerm) unlock(ctx context.Context) error {
	until := t.client.now() + t.Remaining()
	t.note(history.Unlock, nil)
	_, err := t.UnlockContext(ctx)
	t.note(history.Unlocked, err)
	t.checkUnlocked(err, until)
	return err
}

// checkUnlocked checks what Unlock says of an exclusive lock: no two clients have unlocked one hold, and none is told that
// a lock was over that nobody else can have ended before its Until.
func (t *simTerm) checkUnlocked(err error, until time.Duration) {
	c := t.client
	if t.shared.Load() || t.drawn.permits != 0 || t.drawn.heals || c.asked.mistake != "" || c.class[constants] || c.class[forcers] || c.realm != rough && c.realm != tidy {
		return
	}
	if err == nil {
		_, twice := c.unlockedHolds.LoadOrStore(cmp.Or(t.shares, t.event("").ID()), true)
		assert.False(c, twice, "%s #%d has unlocked what another one had", c.name, t.number)
	}
	if t.shares == "" && !t.shown.Load() && c.clocks == "" && c.now() < until && !errors.Is(err, redsync.ErrNotHeld) {
		assert.NotErrorIs(c, err, redsync.ErrLockAlreadyExpired, "%s #%d", c.name, t.number)
	}
}

// giveAway lets another client go on with the lock. The giver no longer believes that it holds the
// lock. It neither extends nor unlocks it, but it may lock again, also with the same Mutex.
func (t *simTerm) giveAway() {
	c := t.client
	t.note(history.Gave, nil)
	close(t.done)
	given, err := t.Detach(c.Context())
	if err != nil {
		_ = t.unlock(c.Context())
		return
	}
	t.show(given, true)
	if c.class[values] {
		c.former = t
		c.pause(0, min(2*t.expiry, 200*time.Millisecond)) // its old expiry may have passed when it locks again
	}
}

// mayShow reports whether other clients may get the value while t goes on. They also unlock the hold. So readers of the
// process, who would not know of that, must not share it.
func (t *simTerm) mayShow() bool {
	return t.client.class[values] && !t.drawn.heals && t.own == nil && !t.hasSeveral() &&
		(!t.drawn.reads || t.drawn.unjoined || t.shares != "")
}

// show gives the value of t to a client of another process or of this one. That client soon
// adopts the lock. If away is set, t no longer unlocks the lock, and the other client must do so.
func (t *simTerm) show(given redsync.Sequencer, away bool) {
	c := t.client
	c.shown++
	giver := t.drawn
	giver.reads, giver.alone = t.shared.Load(), away && !t.shown.Load() && (t.shares == "" || t.drawn.alone)
	t.shown.Store(true)
	c.given(c.process, t.Remaining())
	to := &simClient{player: c.within((c.process+1)%simProcesses, fmt.Sprintf("%s>%d", c.name, c.shown))}
	wait := time.Duration(0)
	if c.class[values] {
		to.process = c.random.IntN(simProcesses)
		wait = between(c.random, 0, min(t.expiry, 100*time.Millisecond))
	}
	whose := cmp.Or(t.shares, t.event("").ID())
	c.adopters.Go(func() {
		time.Sleep(wait)
		to.adopt(t.Name(), given, whose, away, giver)
	})
}

// adopt plays a term that goes on with a lock of another client. The client believes that it holds
// the lock once Extend has adopted it. It sets WithSetNXOnExtend and WithFencing if the giver has them, as
// WithValue demands: otherwise its Unlock would settle a node too early.
func (c *simClient) adopt(name string, given redsync.Sequencer, whose string, away bool, giver drawnOptions) {
	t := c.newTerm(nil, 0)
	t.shares = whose
	var options []redsync.Option
	options, t.expiry, t.drawn = c.options(true)
	if giver.heals {
		options, t.drawn.heals = append(options, redsync.WithSetNXOnExtend()), true
	}
	t.drawn.permits, t.drawn.weight = giver.permits, giver.weight
	if t.drawn.fences = (t.drawn.fences || giver.fences) && giver.permits == 0; t.drawn.fences {
		options = append(options, redsync.WithFencing())
	}
	if giver.reads {
		options, t.drawn.reads = append(options, redsync.WithShared()), true
	}
	t.drawn.alone = giver.alone
	t.shared.Store(giver.reads)
	t.options = options
	if giver.permits != 0 {
		if c.heavy {
			options = append(options, redsync.WithFair())
		}
		t.options = append(slices.Clone(options), c.permitOptions(giver.permits, giver.weight)...)
		if c.oneIn(2) { // otherwise these options come from the Sequencer
			options = t.options
		}
	}
	t.process = c.current(c.process)
	t.Mutex = t.process.NewMutex(name, append(slices.Clone(options), t.adopts(given))...)
	c.given(c.process, t.expiry)
	ctx, cancel := t.patience()
	defer cancel()
	t.note(history.Call, nil)
	if ok, err := t.ExtendContext(ctx); !ok {
		t.note(history.Refused, err)
		if away {
			_ = t.unlock(c.Context())
		}
		return
	}
	t.note(history.Held, nil)
	t.work()
	if c.class[values] && c.oneIn(4) {
		c.lock()
	}
}

// follow notes what the client of t learns during its hold: each extension by the watchdog, and the
// loss of the hold, which the channel lost reports.
func (c *simClient) follow(t *simTerm, lost <-chan struct{}) {
	until := c.now() + t.Remaining()
	promised := until
	go func() {
		for {
			select { // by itself, because the next select would draw a case if lost is closed, too
			case <-t.done:
				return
			default:
			}
			timer := time.NewTimer(until - 1 - c.now())
			select {
			case <-lost:
				timer.Stop()
				if c.clocks != "wall" && until > promised { // the promised Until has passed
					assert.LessOrEqual(c, c.now(), promised+1, "%s #%d was told so late that it had ended", c.name, t.number)
				}
				t.note(history.Lost, nil)
				return
			case <-t.done:
				timer.Stop()
				return
			case <-timer.C:
			}
			left := t.Remaining()
			if c.now()+left <= until {
				if until > promised {
					assert.Fail(c, "never told of its end", "%s #%d", c.name, t.number)
					return
				}
				until += time.Hour // only the report of the loss can come now
				continue
			}
			t.note(history.Extended, nil)
			until = c.now() + left
			promised = until
		}
	}()
}
