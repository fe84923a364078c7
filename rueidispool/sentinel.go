package rueidispool

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"
)

// sentinels open connections to the master of a set. They keep nothing from one connection to the next, so there is
// nothing to close: the pool dials again when the master dies, or answers READONLY because it is none any more.
//
// The client of go-redis for Sentinel would not do: it has one TLSConfig and one Dialer for Sentinels and nodes.
type sentinels struct {
	set       string
	addresses []string
	way       *dialer // to a Sentinel
	node      *dialer

	name, password, clientName string
	function                   function // nil, or gives name and password
}

func newSentinels(option *rueidis.ClientOption) *sentinels {
	return &sentinels{
		set:        option.Sentinel.MasterSet,
		addresses:  append([]string(nil), option.InitAddress...),
		way:        newSentinelDialer(option),
		node:       newDialer(option),
		name:       option.Sentinel.Username,
		password:   option.Sentinel.Password,
		clientName: option.Sentinel.ClientName,
		function:   option.AuthCredentialsFn,
	}
}

// dial opens a connection to the master.
func (s *sentinels) dial(ctx context.Context, _ string) (net.Conn, error) {
	master, err := s.master(ctx)
	if err != nil {
		return nil, fmt.Errorf("rueidispool: no Sentinel names the master of %q: %w", s.set, err)
	}
	return s.node.dial(ctx, master)
}

// master asks all Sentinels at once, because one that is frozen would use up the time of the others. The first that
// names the master is right, as far as Sentinels can be.
func (s *sentinels) master(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		master string
		err    error
	}
	answers := make(chan answer, len(s.addresses)) // a late Sentinel never blocks its goroutine
	for i, address := range s.addresses {
		go func() {
			master, err := s.ask(ctx, address)
			if err != nil {
				err = fmt.Errorf("InitAddress[%d]: %w", i, err) // with a dial function it may be a text with a secret
			}
			answers <- answer{master, err}
		}()
	}
	var failed []error
	for range s.addresses {
		select {
		case a := <-answers:
			if a.err == nil {
				return a.master, nil
			}
			failed = append(failed, a.err)
		case <-ctx.Done(): // a dial function of the user's may not end with ctx
			return "", errors.Join(append(failed, context.Cause(ctx))...)
		}
	}
	return "", errors.Join(failed...)
}

// ask asks one Sentinel for the address of the master. It dials itself: in a goroutine of go-redis, a dial function that
// panics would end the process.
func (s *sentinels) ask(ctx context.Context, address string) (master string, err error) {
	defer func() { // go-redis panics on some replies, too
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	conn, err := s.way.dial(ctx, address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	client := redis.NewSentinelClient(&redis.Options{
		Network: "tcp", Addr: address,
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		Username: s.name, Password: s.password, ClientName: s.clientName,
		CredentialsProviderContext: s.credentials(conn.RemoteAddr()),

		// One question, once, on one connection: the pool tries again.
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = client.Close() }()
	found, err := client.GetMasterAddrByName(ctx, s.set).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", errors.New("it does not know this name")
	case err != nil:
		return "", err
	case len(found) != 2:
		return "", fmt.Errorf("its answer has %d elements, want 2", len(found))
	}
	return net.JoinHostPort(found[0], found[1]), nil
}

// credentials returns what gives go-redis the credentials for the Sentinel at an address, nil without an AuthCredentialsFn.
func (s *sentinels) credentials(address net.Addr) func(context.Context) (string, string, error) {
	if s.function == nil {
		return nil
	}
	return func(context.Context) (string, string, error) {
		got, err := s.function.ask(address)
		return got.Username, got.Password, err
	}
}
