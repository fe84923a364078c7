package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/seed14bd9ef4/redsync/internal/foreign"
)

// credentials are those of a StreamingCredentialsProvider for one connection. When it replaces them, the pool opens
// another; go-redis would send AUTH on an idle one.
type credentials struct {
	renewed func()

	mu          sync.Mutex // guards what follows
	unsubscribe auth.UnsubscribeFunc
	latest      auth.Credentials
	used        bool // by the greeting
	name        string
	password    string
}

// follow makes opt use the credentials of the user's provider, if there is one.
func follow(ctx context.Context, opt *redis.Options, renewed func()) (*credentials, error) {
	provider := opt.StreamingCredentialsProvider
	if provider == nil {
		return nil, nil
	}
	c := &credentials{renewed: renewed}
	subscribed := make(chan error, 1)
	go func() { subscribed <- c.subscribe(provider) }()
	select {
	case err := <-subscribed:
		if err != nil {
			return nil, fmt.Errorf("no credentials: %w", err)
		}
	case <-ctx.Done():
		go func() { // the provider may still answer
			if <-subscribed == nil {
				c.release()
			}
		}()
		return nil, fmt.Errorf("no credentials: the provider has not answered: %w", context.Cause(ctx))
	}
	opt.StreamingCredentialsProvider = nil
	opt.CredentialsProviderContext = c.use
	return c, nil
}

func (c *credentials) subscribe(provider auth.StreamingCredentialsProvider) (err error) {
	defer recovered(&err)
	first, unsubscribe, err := provider.Subscribe(c)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsubscribe = unsubscribe
	if c.latest == nil { // otherwise OnNext has already replaced first
		c.latest = first
	}
	return nil
}

func (c *credentials) use(context.Context) (name, password string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest == nil {
		return "", "", errors.New("the StreamingCredentialsProvider gave no credentials")
	}
	c.name, c.password = c.latest.BasicAuth()
	if c.password == "" && c.name != "" && c.name != "default" {
		return "", "", errNoPassword
	}
	c.used = true
	return c.name, c.password, nil
}

// errNoPassword refuses a name without a password: go-redis would greet as the default user.
var errNoPassword = errors.New("the StreamingCredentialsProvider gave a name without a password")

// OnNext implements auth.CredentialsListener.
func (c *credentials) OnNext(next auth.Credentials) {
	if next != nil && c.replace(next) {
		c.renewed()
	}
}

func (c *credentials) replace(next auth.Credentials) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = next
	name, password := next.BasicAuth()
	return c.used && (name != c.name || password != c.password)
}

// OnError does nothing: a node that stops accepting the credentials ends the connection.
func (*credentials) OnError(error) {}

// release ends the subscription to the provider, which may take long. c may be nil.
func (c *credentials) release() {
	if c == nil {
		return
	}
	c.mu.Lock()
	unsubscribe := c.unsubscribe
	c.unsubscribe = nil
	c.mu.Unlock()
	if unsubscribe == nil {
		return
	}
	go func() {
		var err error
		defer recovered(&err)
		err = unsubscribe()
	}()
}

func (c *credentials) secret() string {
	if c == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.password
}

// hintedWithout is hinted, but the text ends before a password that the node repeats.
func hintedWithout(err error, password string, given *credentials) error {
	if err == nil {
		return nil
	}
	text, shown := fmt.Sprint(err), hinted(err) // fmt survives an Error method that panics
	if before := foreign.Before(text, []string{password, given.secret()}, nil); before != text {
		return &reworded{strings.TrimSuffix(shown.Error(), text) + before, wrapped{shown}}
	}
	return shown
}
