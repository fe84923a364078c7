package redsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/address"
	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/pool"
)

// Open connects to the nodes at addresses: "host:port", or redis://, rediss:// or unix:// URLs. While no quorum
// answers, it asks again until ctx ends, or for 5 s if ctx has no deadline, and logs "waiting for nodes". Then it waits
// up to 250 ms for the others, and logs those that are missing.
//
// With rediss:// the certificate is verified, unless the URL says ?skip_verify=true. options are the defaults of the
// locks. Close ends the connections. For options of a pool use New.
//
// Errors:
//
//   - ErrNoQuorum, with the reason of each node: at once if too many nodes deny access, or else at the end.
//   - The error of ctx as well, if it has ended: alone, if not all nodes had failed by then.
//   - ErrDuplicateNode, if an address is listed twice, or the distinct servers are no quorum of all addresses.
//   - One that names the malformed address, or the option that is out of range.
func Open(ctx context.Context, addresses []string, options ...Option) (*Redsync, error) {
	pools, err := dial(addresses)
	if err != nil {
		return nil, fail("Open", "", err)
	}
	return New(pools...).open(ctx, "Open", options)
}

func dial(addresses []string) ([]pool.Pool, error) {
	pools := make([]pool.Pool, 0, len(addresses))
	for i, text := range addresses {
		client, err := newClient(text)
		if err == nil {
			pools = append(pools, pool.New(client))
			err = quorum.Unusable(pools[i])
		}
		if err != nil {
			return nil, fail(fmt.Sprintf("address #%d", i), "", err)
		}
	}
	return pools, nil
}

func (r *Redsync) open(ctx context.Context, op string, options []Option) (*Redsync, error) {
	r = r.With(options...)
	r.core.owned = true
	if err := r.ping(ctx, op); err != nil {
		return nil, errors.Join(err, r.Close(ctx))
	}
	return r, nil
}

const (
	pingTimeout = 5 * time.Second        // of a round of Open, of Open without a deadline, and of Ping
	openPause   = restTimeout            // between rounds of Open
	restTimeout = 250 * time.Millisecond // for the other nodes, once a quorum has answered
)

// Ping returns nil if a quorum of nodes answers: for the start of a program, and as a readiness probe. It waits up to
// 250 ms for the other nodes, and logs those that are missing as a Warn (by WithLogger, or slog.Default()), the same
// ones at most once in 10 s. Nodes that answer may still refuse locks: see docs/operating.md.
//
// Errors:
//
//   - ErrNoQuorum, with the reason of each node: once every node has answered or failed, after 5 s, or at the deadline
//     of ctx.
//   - context.Canceled alone, if ctx is canceled.
//   - ErrDuplicateNode, ErrNoPools, ErrClosed, or one that names an option that is out of range.
func (r *Redsync) Ping(ctx context.Context) error {
	if r == nil {
		return fail("Ping", "", ErrNoPools)
	}
	if err := r.core.beginCall(); err != nil {
		return fail("Ping", "", err)
	}
	defer r.core.keeper.EndCall()
	return r.ping(ctx, "Ping")
}

func (r *Redsync) ping(ctx context.Context, op string) error {
	c := r.core
	p, err := r.set.check()
	if err != nil {
		return fail(op, "", err)
	}
	if c.err != nil {
		return fail(op, "", c.err)
	}
	if err := c.allows(&p.Timing); err != nil {
		return fail(op, "", err)
	}
	ctx = orBackground(ctx)
	if ctx.Err() != nil {
		return fail(op, "", contextErrors(ctx))
	}
	start := time.Now()
	a := c.askAll(ctx)
	if op != "Ping" {
		a = r.askAgain(ctx, start, a)
	}
	if r.set.observers != nil {
		c.keeper.Set.TellServers(&events{to: r.set.observers, notices: c.notices})
	}
	switch d := c.keeper.Set.Duplicate(); {
	case d != nil:
		return fail(op, "", duplicateFound(d))
	case a.quorum:
		r.logMissing(ctx, op, a)
		return nil
	case c.keeper.IsClosed():
		return fail(op, "", ErrClosed)
	}
	text := a.rule.enough(a.nodes, !a.cut) + lasting(a.rule, a.denying)
	why := error(&said{ErrNoQuorum, text})
	inTime := op == "Ping" && errors.Is(ctx.Err(), context.DeadlineExceeded) // the caller has set the time
	if a.cut && !inTime {
		why = errors.New(text)
	}
	return fail(op, "", why, contextErrors(ctx), a.missing)
}

type answers struct {
	quorum  bool
	cut     bool // the context ended first
	rule    form
	nodes   claim.Nodes // one for each server
	denying claim.Nodes // until somebody changes a setting
	silent  bool        // a node has not answered
	missing *failure    // what is wrong with the others
}

// askAll asks all nodes. A first round ends once the quorum is decided, a second one learns what is wrong with each
// node.
func (c *core) askAll(ctx context.Context) answers {
	start, set := time.Now(), c.keeper.Set
	limits := func(d time.Duration) quorum.Limits {
		return quorum.Limits{Decide: d, Node: d, Over: c.keeper.Closing()}
	}
	round := set.Start(ctx, quorum.Ping{Whole: set.Nodes}, false)
	first := round.Wait(ctx, limits(pingTimeout))
	a := answers{quorum: first.Won, cut: first.Cut, rule: first.Rule.(form), missing: &failure{}}
	rest, silent := restTimeout, quorum.ErrNoAnswer
	if !a.quorum {
		rest = pingTimeout - time.Since(start)
	}
	if ctx.Err() == nil && rest > 0 {
		round = set.Start(ctx, quorum.Ping{Whole: set.Nodes}, true)
		a.quorum = round.Wait(ctx, limits(rest)).Won || a.quorum
		silent = quorum.NoAnswerWithin(rest.Round(time.Millisecond))
	}
	for i, v := range round.Votes(silent) {
		switch {
		case v.Choice == claim.Granted || first.Count.Granted.Has(i):
			a.nodes = a.nodes.With(i)
		case !errors.Is(v.Err, quorum.ErrDuplicate):
			a.missing.nodes, a.silent = append(a.missing.nodes, explain(set.Nodes[i], v)), true
			if pool.IsPermanent(v.Err) {
				a.denying = a.denying.With(i)
			}
		}
	}
	for _, pair := range set.Pairs() {
		if a.nodes.Has(pair[0]) {
			a.nodes = a.nodes.Without(pair[1])
		}
		first, second := set.Nodes[pair[0]].Address(), set.Nodes[pair[1]].Address()
		text := oneServer(pair[0], first, pair[1], second) + ", which counts once"
		if first != second {
			text += ifTwo
		}
		a.missing.nodes = append(a.missing.nodes, errors.New(text))
	}
	return a
}

// askAgain asks again for Open, until a quorum has answered or none can. It returns the last answers that ctx has not
// cut.
func (r *Redsync) askAgain(ctx context.Context, start time.Time, a answers) answers {
	end, has := ctx.Deadline()
	if !has {
		end = start.Add(pingTimeout)
		limited, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		ctx = limited
	}
	for told := false; !a.quorum && !a.cut && !a.rule.Blocks(a.denying) && r.core.keeper.Set.Duplicate() == nil; told = true {
		if ctx.Err() != nil {
			return a
		}
		for _, log := range r.logs() {
			if !told {
				log.WarnContext(ctx, "redsync: waiting for nodes", "answered", a.rule.answer(a.nodes),
					"at_most", time.Until(end).Round(time.Millisecond), "error", a.missing)
			}
		}
		pause := time.NewTimer(openPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return a
		}
		next := r.core.askAll(ctx)
		if next.cut {
			return a
		}
		a = next
	}
	return a
}

func (r *Redsync) logs() []*slog.Logger {
	if to := r.set.observers; to != nil && to.loggers != nil {
		return to.loggers
	}
	return []*slog.Logger{slog.Default()}
}

func (r *Redsync) logMissing(ctx context.Context, op string, a answers) {
	if a.missing.nodes == nil || ctx.Err() != nil {
		return // ctx has cut the wait: nothing is known
	}
	said := func(per time.Duration) (isNew bool) {
		for _, i := range indices(a.rule.All() &^ a.nodes) {
			_, due := r.core.journal().Rarely(nil, journal.Subject{Message: "Ping", Node: i}, 1, per)
			isNew = isNew || due
		}
		return isNew
	}
	if !said(journal.Every) && op == "Ping" {
		return
	}
	said(0) // the line has all of them
	message := "redsync: some nodes do not answer"
	if !a.silent {
		message = "redsync: some nodes are one server"
	}
	for _, log := range r.logs() {
		log.WarnContext(ctx, message,
			"answered", a.rule.answer(a.nodes), "may_fail", a.rule.spare(a.nodes), "error", a.missing)
	}
}

// newClient returns a client that starts nothing: the pool only reads its options.
func newClient(text string) (*redis.Client, error) {
	opt, err := address.Options(text)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(opt), nil
}
