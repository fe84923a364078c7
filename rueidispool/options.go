package rueidispool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"
)

// Options returns go-redis options for the node that option describes, for pool.New(redis.NewClient(opt)). It sends
// nothing.
//
// option describes one node: InitAddress has one address, or, with Sentinel.MasterSet, those of the Sentinels. Then each
// new connection first asks all Sentinels at once for the master, and goes to the one that the first answer names.
//
// Address, TLS, dial functions, Dialer, credentials, client name, library name, database, timeouts and the lifetime of
// connections are carried over. AuthCredentialsFn is asked for every connection, and again at RefreshAfter, at least a
// second later: then the pool exchanges its connection for one with the new credentials, once nothing is outstanding on
// it. If the function fails then, it is asked again every 5 s, and the connection keeps its credentials meanwhile.
//
// Fields that would change nothing on the connection of a pool are ignored: those of caches, replicas, retries, buffers
// and pipelines, and those of Sentinel without a MasterSet. README.md lists them. Every other field that is not zero is
// an error that names it, also one of a newer rueidis. So is a value that no connection can have, such as a negative
// SelectDB. No error contains a value that may be a secret.
//
// A Username without a Password is an error, because go-redis would log in as the default user. Without a function for
// it, an address is of the form host:port.
//
// The options also suit a client of their own. A dial function, a Dialer with more than a Timeout, AuthCredentialsFn and
// Sentinel become a Dialer in the options. Then a Redsync notices that two pools lead to one server only once the server
// has answered both.
func Options(option rueidis.ClientOption) (*redis.Options, error) {
	if err := acceptable(option); err != nil {
		return nil, err
	}
	if err := valid(&option); err != nil {
		return nil, err
	}
	opt := &redis.Options{
		Network:         "tcp",
		Addr:            option.InitAddress[0],
		Username:        option.Username,
		Password:        option.Password,
		ClientName:      option.ClientName,
		DB:              option.SelectDB,
		TLSConfig:       option.TLSConfig,
		DialTimeout:     option.Dialer.Timeout,
		ReadTimeout:     option.ConnWriteTimeout,
		WriteTimeout:    option.ConnWriteTimeout,
		ConnMaxLifetime: max(0, option.ConnLifetime),
		DisableIdentity: option.ClientSetInfo != nil,
		OnConnect:       greeting(&option),

		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // rueidis has none
	}
	if option.ConnWriteTimeout < 0 {
		opt.ReadTimeout, opt.WriteTimeout = -1, -1 // none
	}
	if option.AlwaysRESP2 {
		opt.Protocol = 2
	}
	node := &route{}
	if option.AuthCredentialsFn != nil {
		opt.Username, opt.Password = "", "" // as in rueidis, the function has priority
		opt.StreamingCredentialsProvider = newProvider(option.AuthCredentialsFn, node.remote)
	}
	switch {
	case option.Sentinel.MasterSet != "":
		opt.Addr = option.Sentinel.MasterSet // texts show it until a node is reached
		opt.Dialer = node.through(newSentinels(&option).dial)
	case option.AuthCredentialsFn != nil || !isPlain(&option):
		opt.Dialer = node.through(newDialer(&option).dial)
	}
	return opt, nil
}

// valid returns an error if a field has a value that no connection can have.
func valid(option *rueidis.ClientOption) error {
	if err := validAddresses(option); err != nil {
		return err
	}
	sentinel := &option.Sentinel
	switch {
	case option.SelectDB < 0:
		return fmt.Errorf("rueidispool: SelectDB is %d: it must be 0 or more", option.SelectDB)
	case option.Dialer.Timeout < 0:
		return fmt.Errorf("rueidispool: Dialer.Timeout is %v: it must be 0 (for 5 s) or more", option.Dialer.Timeout)
	case sentinel.Dialer.Timeout < 0:
		return fmt.Errorf("rueidispool: Sentinel.Dialer.Timeout is %v: it must be 0 (for 5 s) or more", sentinel.Dialer.Timeout)
	case option.AuthCredentialsFn != nil:
		return nil // in place of all names and passwords
	case lacksPassword(option.Username, option.Password):
		return fmt.Errorf("rueidispool: Username is set without Password: %w", errNoPassword)
	case lacksPassword(sentinel.Username, sentinel.Password):
		return fmt.Errorf("rueidispool: Sentinel.Username is set without Sentinel.Password: %w", errNoPassword)
	}
	return nil
}

func validAddresses(option *rueidis.ClientOption) error {
	n := len(option.InitAddress)
	switch {
	case n == 0:
		return errors.New("rueidispool: InitAddress is empty: it must have the node's address")
	case n > 1 && option.Sentinel.MasterSet == "":
		return fmt.Errorf("rueidispool: InitAddress has %d addresses: each node of a lock is one server, so call Options once for each "+
			"(%s; for Sentinels, set Sentinel.MasterSet)", n, noCluster)
	}
	for i, address := range option.InitAddress {
		if err := validAddress(address, option.DialCtxFn != nil || option.DialFn != nil); err != nil {
			return fmt.Errorf("rueidispool: InitAddress[%d] %w", i, err)
		}
	}
	return nil
}

// validAddress returns an error if address leads nowhere. The error does not quote it: it may be a URL with a password.
func validAddress(address string, ownFunction bool) error {
	switch _, _, err := net.SplitHostPort(address); {
	case address == "":
		return errors.New("is empty")
	case ownFunction:
		return nil // the function may take any text
	case strings.ContainsAny(address, "@?") || strings.Contains(address, "://"):
		return errors.New("is not of the form host:port; rueidis.ParseURL reads a URL")
	case err != nil:
		return errors.New("is not of the form host:port")
	}
	return nil
}

// greeting returns what a connection sends after the greeting of go-redis, nil if that is nothing.
func greeting(option *rueidis.ClientOption) func(context.Context, *redis.Conn) error {
	var must, may [][]any
	if option.ClientNoTouch {
		must = append(must, []any{"client", "no-touch", "on"})
	}
	if option.ClientNoEvict {
		must = append(must, []any{"client", "no-evict", "on"})
	}
	if len(option.ClientSetInfo) == 2 {
		may = append(may, []any{"client", "setinfo", "lib-name", option.ClientSetInfo[0]},
			[]any{"client", "setinfo", "lib-ver", option.ClientSetInfo[1]})
	}
	if must == nil && may == nil {
		return nil
	}
	return func(ctx context.Context, conn *redis.Conn) error {
		for _, command := range must {
			if err := conn.Do(ctx, command...).Err(); err != nil {
				return fmt.Errorf("%v: %w", command, err)
			}
		}
		for _, command := range may {
			var answer redis.Error // older servers do not know the command, and rueidis ignores that, too
			if err := conn.Do(ctx, command...).Err(); err != nil && !errors.As(err, &answer) {
				return err
			}
		}
		return nil
	}
}
