package wire

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file makes our connections follow a client of Sentinel.
//
// When the sentinels announce another master, go-redis closes every connection that the client's pool has to another
// address. It cannot close ours. But the pool counts what it removes. So a follower reads that counter every
// followPause, and a stream also before it writes. If it has risen, the follower looks where the client's dial leads.
// Connections that lead elsewhere end at once.
//
// The counter tells nothing if the pool is empty, or if all its connections are in use. Then the follower sends a PING
// through the client, if the pool has room. If still no connection becomes idle, it looks every blindPause.

const (
	followPause = 25 * time.Millisecond
	blindPause  = 500 * time.Millisecond
	maxPause    = 2 * time.Second // the longest pause between looks that reach no node

	// lookTimeout bounds a look. A Dialer may ignore its context: looksApart separates looks, and maxLooks bounds them.
	lookTimeout = time.Second
	looksApart  = 100 * time.Millisecond
	maxLooks    = 16

	// holdFor is how long a stream waits for a look before it writes.
	holdFor = 100 * time.Millisecond

	// greetPatience is how long a look waits for the run id at another address, perhaps of the same server.
	greetPatience = 50 * time.Millisecond

	// slowDial is the least age of a dial that a look interrupts.
	slowDial = 250 * time.Millisecond
)

// ofSentinel stands in place of an address in the options of a client of Sentinel.
const ofSentinel = "FailoverClient"

// A place is what is known of a node. Both may be empty.
type place struct{ address, runID string }

func (p place) differs(from place) bool {
	if p.runID != "" && from.runID != "" {
		return p.runID != from.runID
	}
	return p.address != "" && from.address != "" && p.address != from.address
}

// followers holds the follower of each client with connections.
var followers struct {
	sync.Mutex // locked before the mu of a follower
	of         map[*redis.Client]*follower
}

// A follower watches the pool of one client of Sentinel.
type follower struct {
	user *redis.Client
	life context.Context //nolint:containedctx // of the follower
	end  context.CancelFunc

	mu     sync.Mutex // guards what follows
	conns  map[*followed]struct{}
	seen   uint32 // removed connections when the last look began
	latest *look  // the last that has begun
	found  *look  // the last that has arrived somewhere
	under  int

	doubtful bool      // a look is due at again, although the pool has removed nothing
	again    time.Time // when to look without a reason, or to make the client connect
	pause    time.Duration
	pinging  bool
	busy     time.Time // since when the pool has had no idle connection, or zero
}

// A look finds out where the client's dial leads.
type look struct {
	began time.Time
	told  bool  // the client has closed connections
	named bool  // it asks which server is there
	at    place // guarded by the follower's mu
	done  chan struct{}
}

// A followed is a connection that follows a client, dialing or open.
type followed struct {
	*follower
	began time.Time
	leave func()
	named bool // run_ids count: see pool.WithoutIdentity

	// Guarded by the follower's mu.
	open bool
	at   place
	left bool // leave has been or is being called
}

// followClient makes a connection, not yet dialed, follow its client until ctx ends. dialing ends the dial.
func followClient(ctx context.Context, user *redis.Client, named bool, dialing func()) *followed {
	followers.Lock()
	defer followers.Unlock()
	f := followers.of[user]
	if f == nil {
		f = &follower{user: user, conns: make(map[*followed]struct{}), pause: blindPause, seen: user.PoolStats().StaleConns}
		f.life, f.end = context.WithCancel(context.Background())
		if followers.of == nil {
			followers.of = make(map[*redis.Client]*follower)
		}
		followers.of[user] = f
		go f.run() //nolint:contextcheck // it lives as long as its connections
	}
	c := &followed{follower: f, began: time.Now(), leave: dialing, named: named}
	f.mu.Lock()
	f.conns[c] = struct{}{}
	f.mu.Unlock()
	context.AfterFunc(ctx, c.forget)
	return c
}

func (c *followed) forget() {
	followers.Lock()
	defer followers.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, c)
	if len(c.conns) == 0 {
		c.end()
		if followers.of[c.user] == c.follower {
			delete(followers.of, c.user)
		}
	}
}

// opened records where the dial has led; server may be nil. leave ends the connection. On errMoved, when a later look
// has led elsewhere, it must not be used.
func (c *followed) opened(conn net.Conn, server *Server, leave func()) error {
	at := place{address: remoteAddress(conn)}
	if server != nil && c.named {
		at.runID = server.RunID
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for other := range c.conns { // a subscription learns its process from the stream
		if other.open && other.at.address == at.address {
			at.runID = cmp.Or(at.runID, other.at.runID)
			other.at.runID = cmp.Or(other.at.runID, at.runID)
		}
	}
	if c.left || c.found != nil && c.found.began.After(c.began) && c.found.at.differs(at) {
		return errMoved
	}
	c.open, c.at, c.leave = true, at, leave
	return nil
}

// settle waits briefly for a look that began because the client has closed connections, so that a stream writes nothing
// to a node that its client has left.
func (c *followed) settle() {
	l := c.notice()
	if l == nil {
		return
	}
	if left := holdFor - time.Since(l.began); left > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-l.done:
		case <-timer.C:
		}
	}
}

func (f *follower) run() {
	ticks := time.NewTicker(followPause)
	defer ticks.Stop()
	for {
		f.notice()
		select {
		case <-ticks.C:
		case <-f.life.Done():
			return
		}
	}
}

// notice begins what is due. It returns the latest look if one for closed connections is under way.
func (f *follower) notice() *look {
	stats := f.user.PoolStats()
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case stats.IdleConns > 0:
		f.busy = time.Time{}
	case f.busy.IsZero():
		f.busy = now
	}
	blind := !f.busy.IsZero() && now.Sub(f.busy) >= blindPause
	due := !now.Before(f.again)
	if due && !f.pinging && (stats.TotalConns == 0 || blind && stats.TotalConns < uint32(f.user.Options().PoolSize)) { //nolint:gosec // small
		f.pinging, f.doubtful = true, true
		go f.ping()
	}
	switch changed := stats.StaleConns != f.seen; {
	case changed && f.mayLook(now):
		f.seen = stats.StaleConns
		f.begin(now, true)
	case (f.doubtful && !f.pinging || blind) && due && f.mayLook(now):
		f.again = now.Add(f.pause)
		f.begin(now, false)
	}
	if f.under > 0 && f.latest.told {
		return f.latest
	}
	return nil
}

func (f *follower) mayLook(now time.Time) bool {
	return f.under == 0 || f.under < maxLooks && now.Sub(f.latest.began) >= looksApart
}

// begin begins a look. The caller holds mu.
func (f *follower) begin(now time.Time, told bool) {
	f.latest = &look{began: now, told: told, done: make(chan struct{})}
	for c := range f.conns {
		f.latest.named = f.latest.named || c.named
	}
	f.under++
	go f.look(f.latest)
}

// ping makes the client connect. The client's own timeouts bound it.
func (f *follower) ping() {
	_ = f.pingOnce()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pinging = false
	f.again = time.Now()
	if f.user.PoolStats().IdleConns == 0 {
		f.again = f.again.Add(f.pause)
	}
}

func (f *follower) pingOnce() (err error) {
	defer recovered(&err)
	return f.user.Process(f.life, onceOnly{redis.NewStatusCmd(f.life, "ping")})
}

// onceOnly is a command that go-redis does not send again.
type onceOnly struct{ *redis.StatusCmd }

func (onceOnly) NoRetry() bool { return true }

// look dials as the client would, and asks which server answers.
func (f *follower) look(l *look) {
	ctx, cancel := context.WithTimeout(f.life, lookTimeout)
	defer cancel() // closes the connection
	var at place
	unnamed := time.AfterFunc(time.Hour, func() { f.arrive(l, place{address: at.address}) })
	defer func() { // also if a user's Dialer ends this goroutine
		unnamed.Stop()
		f.looked(l, at)
	}()
	_, _ = open(ctx, f.user, opening{
		dial: lookTimeout, whole: lookTimeout, renewed: func() {},
		dialed: func(conn net.Conn) {
			at.address = remoteAddress(conn)
			unnamed.Reset(greetPatience)
		},
		ask: func(ctx context.Context, cn *redis.Conn, _ *ownConn) error {
			if !l.named {
				return nil
			}
			if info, err := cn.Do(ctx, "info", "server").Text(); err == nil {
				at.runID = field(info, "run_id")
			}
			return nil
		},
	})
}

func (f *follower) looked(l *look, at place) {
	reached := at.address != "" || at.runID != ""
	if reached {
		f.arrive(l, at)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.under--
	close(l.done)
	f.doubtful, f.pause = false, blindPause
	if !reached {
		f.doubtful, f.pause = true, min(2*f.pause, maxPause)
	}
}

// arrive ends connections that lead elsewhere, and slow dials that began before the look.
func (f *follower) arrive(l *look, at place) {
	f.mu.Lock()
	l.at = at
	if f.found == nil || f.found.began.Before(l.began) {
		f.found = l
	}
	var leave []func()
	for c := range f.conns {
		switch {
		case c.left || c.began.After(l.began) || f.found != l:
			continue
		case !c.open && time.Since(c.began) < slowDial:
			continue // opened will compare
		case c.open && !at.differs(c.at):
			if c.at.address == at.address && c.at.runID == "" {
				c.at.runID = at.runID
			}
			continue
		}
		c.left = true
		leave = append(leave, c.leave)
	}
	f.mu.Unlock()
	for _, end := range leave {
		end()
	}
}

func dialFollowing(parent context.Context, user *redis.Client, channel string) (wire, error) {
	for {
		ctx, end := context.WithCancelCause(parent) // parent ends with the connection
		leave := func() { end(errMoved) }
		follows := followClient(ctx, user, false, leave)
		w, err := dialWire(ctx, user, channel, "")
		if err == nil {
			err = follows.opened(w.Conn, nil, leave)
		}
		if err == nil {
			return w, nil
		}
		end(err)
		if err = moved(ctx, err); !errors.Is(err, errMoved) {
			return nil, err
		}
	}
}

// moved returns err, or errMoved if that has ended ctx.
func moved(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errMoved { //nolint:errorlint // a sentinel
		return errMoved
	}
	return err
}
