package rueidispool

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9/auth"
	"github.com/redis/rueidis"
)

const (
	// minRefresh is how long credentials are used at least, even if RefreshAfter has passed: otherwise a function that
	// returns such a time would be asked without a pause.
	minRefresh = time.Second

	// refreshAgain is the pause before a function that has failed is asked again.
	refreshAgain = 5 * time.Second
)

// errNoPassword refuses a name without a password, with which rueidis would send AUTH.
var errNoPassword = errors.New("go-redis would log in as the default user; a user with nopass accepts any password")

// lacksPassword reports whether go-redis would ignore the name.
func lacksPassword(name, password string) bool {
	return name != "" && name != "default" && password == ""
}

// A function is an AuthCredentialsFn.
type function func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error)

// ask returns the credentials for a connection to address. A panic becomes an error, because timers ask, too.
func (f function) ask(address net.Addr) (got rueidis.AuthCredentials, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("rueidispool: AuthCredentialsFn panicked: %v", r)
		}
	}()
	got, err = f(rueidis.AuthCredentialsContext{Address: address})
	if err == nil && lacksPassword(got.Username, got.Password) {
		err = fmt.Errorf("rueidispool: AuthCredentialsFn has returned a Username without a Password: %w", errNoPassword)
	}
	return got, err
}

// A provider makes a StreamingCredentialsProvider of an AuthCredentialsFn. Only such a provider can replace the
// credentials of a connection that lasts, as RefreshAfter demands.
type provider struct {
	function
	remote func() net.Addr // of the newest connection

	mu        sync.Mutex // guards what follows, and the timers of followers
	followers map[auth.CredentialsListener]*follower
}

// A follower is a connection that uses the credentials.
type follower struct {
	listener auth.CredentialsListener
	address  net.Addr
	timer    *time.Timer // nil while nothing is planned
}

func newProvider(f function, remote func() net.Addr) *provider {
	return &provider{function: f, remote: remote, followers: make(map[auth.CredentialsListener]*follower)}
}

// Subscribe implements auth.StreamingCredentialsProvider. go-redis calls it for each connection, after the dial.
func (p *provider) Subscribe(to auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	f := &follower{listener: to, address: p.remote()}
	got, err := p.ask(f.address)
	if err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(to)
	p.followers[to] = f
	p.plan(f, got.RefreshAfter)
	return auth.NewBasicCredentials(got.Username, got.Password), func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.forget(to)
		return nil
	}, nil
}

// forget ends what is planned for a listener. The caller has locked p.mu.
func (p *provider) forget(to auth.CredentialsListener) {
	if f := p.followers[to]; f != nil && f.timer != nil {
		f.timer.Stop()
	}
	delete(p.followers, to)
}

// plan asks for new credentials at a time, never if that is zero. It reports whether f still follows. The caller has
// locked p.mu.
func (p *provider) plan(f *follower, at time.Time) bool {
	if p.followers[f.listener] != f {
		return false
	}
	if !at.IsZero() {
		f.timer = time.AfterFunc(max(minRefresh, time.Until(at)), func() { p.refresh(f) })
	}
	return true
}

// refresh tells a connection which credentials are valid now. It may tell one that has just ended, which does nothing
// with them.
func (p *provider) refresh(f *follower) {
	got, err := p.ask(f.address)
	next := got.RefreshAfter
	if err != nil {
		next = time.Now().Add(refreshAgain)
	}
	p.mu.Lock()
	follows := p.plan(f, next)
	p.mu.Unlock()
	switch {
	case !follows:
	case err != nil:
		f.listener.OnError(err)
	default:
		f.listener.OnNext(auth.NewBasicCredentials(got.Username, got.Password))
	}
}
