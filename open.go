package redsync

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/pool"
)

// Open connects to the nodes at addresses, "host:port" or redis://, rediss:// or unix:// URLs. It returns
// once a quorum of nodes has answered. Without a quorum it returns ErrNoQuorum, and the error names each node that has
// not answered. It does so once every node has answered or failed, after 5 s, or when ctx is done,
// whichever comes first. Open fails at once if an address is malformed or listed twice (ErrDuplicateNode),
// or if an option is out of its range. If addresses lead to one server, it counts once; Open fails with
// ErrDuplicateNode only if the distinct servers are no quorum of all addresses. The options are the defaults
// of the Redsync's locks. Close ends the connections. For the options of a pool, such as pool.WithRestartGuard, use New.
func Open(ctx context.Context, addresses []string, options ...Option) (*Redsync, error) {
	pools, err := dial(addresses)
	if err != nil {
		return nil, fail("Open", "", err)
	}
	return New(pools...).open(ctx, "Open", options)
}

// dial returns a pool for each address. It sends nothing.
func dial(addresses []string) ([]pool.Pool, error) {
	pools := make([]pool.Pool, 0, len(addresses))
	for i, address := range addresses {
		client, err := newClient(address)
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

// open returns r with options, once a quorum of its nodes has answered. op is the name of the function for errors.
func (r *Redsync) open(ctx context.Context, op string, options []Option) (*Redsync, error) {
	r = r.With(options...)
	if _, err := r.set.timing(); err != nil {
		return nil, fail(op, "", err)
	}
	r.core.owned = true
	if err := r.ping(ctx); err != nil {
		return nil, errors.Join(fail(op, "", err), r.Close(ctx))
	}
	return r, nil
}

// openTimeout bounds Open.
const openTimeout = 5 * time.Second

// ping returns nil once a quorum of nodes has answered.
func (r *Redsync) ping(ctx context.Context) error {
	c := r.core
	if c.err != nil {
		return c.err
	}
	ctx, start := orBackground(ctx), time.Now()
	set, limits := c.keeper.Set, quorum.Limits{Decide: openTimeout, Node: openTimeout}
	res := set.Start(ctx, quorum.Ping{}, false).Wait(ctx, limits)
	cut := res.Cut // no round was decided
	if left := openTimeout - time.Since(start); !res.Won && ctx.Err() == nil && left > 0 {
		// The first round ended once a quorum was out of reach. The second one waits for every node, so that the
		// error says what is wrong with each.
		limits, cut = quorum.Limits{Decide: left, Node: left}, false
		res = set.Start(ctx, quorum.Ping{}, true).Wait(ctx, limits)
	}
	if r.set.observers != nil {
		set.TellServers(&events{to: r.set.observers, notices: c.notices})
	}
	if d := set.Duplicate(); d != nil {
		return duplicateError(d.A.Index, d.A.Address(), d.B.Index, d.B.Address())
	}
	if res.Won {
		return nil
	}
	for i, v := range res.Votes { // also those that had not answered when ctx ended
		if v.Choice == claim.Pending && res.Rule.All().Has(i) {
			res.Votes[i] = claim.Failure(quorum.ErrNoAnswer)
		}
	}
	text := res.Rule.(interface{ enough(claim.Nodes) string }).enough(res.Count.Granted)
	why := error(&said{ErrNoQuorum, text})
	if cut {
		why = errors.New(text)
	}
	return fail("", "", why, contextErrors(ctx), &failure{nodes: errorsOf(res)})
}

// newClient returns a client for the node at address. The client stays unused and starts nothing: the
// pool only reads its options. newClient clears the pool sizes that a URL may set: they have no effect
// here, and go-redis panics on some of them.
func newClient(address string) (*redis.Client, error) {
	opt, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	opt.PoolSize, opt.PipelinePoolSize, opt.MaxConcurrentDials = 0, 0, 0
	opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = 0, 0, 0
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(opt), nil
}

func parseAddress(address string) (*redis.Options, error) {
	if strings.Contains(address, "://") {
		opt, err := redis.ParseURL(address)
		switch {
		case err == nil:
			return opt, nil
		case strings.Contains(address, "@"):
			// The parser's error may quote a part of the password.
			return nil, fmt.Errorf("%q cannot be parsed as a URL", redacted(address))
		default:
			return nil, fmt.Errorf("%q: %w", address, err)
		}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" || strings.Contains(address, "@") {
		return nil, fmt.Errorf("%q is not of the form host:port or redis://", redacted(address))
	}
	return &redis.Options{Addr: address}, nil
}

// redacted cuts what may be a password out of an address.
func redacted(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	if scheme, _, ok := strings.Cut(address, "://"); ok && !strings.ContainsAny(scheme, ":@") {
		return scheme + "://..." + address[at:]
	}
	return "..." + address[at:]
}
