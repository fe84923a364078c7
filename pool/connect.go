package pool

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file opens connections, for streams and for subscriptions. go-redis dials,
// with TLS, Sentinel and the user's own Dialer, and greets the node: HELLO, AUTH with
// the credentials of the day, SELECT, CLIENT SETNAME, the user's OnConnect. A
// connection whose greeting the node has refused is closed. Else it is the pool's:
// go-redis never touches it again.

const (
	// maxReadTimeout bounds how long a silent connection is trusted, whatever
	// the user's client allows; without a bound a stream cannot be closed.
	maxReadTimeout = 5 * time.Second

	// defaultDialTimeout is for clients that have none.
	defaultDialTimeout = 5 * time.Second
)

// connections counts what all streams begin to open, so that a client's next
// stream goes on where its last one ended.
var connections atomic.Uint64

// connect opens a connection. An error means that no request was written on it. The end
// of ctx closes it.
func (s *stream) connect(ctx context.Context) (*conn, error) {
	c := &conn{stream: s, number: connections.Add(1), opened: time.Now(), ended: make(chan struct{})}
	if err := c.open(ctx, s.user.Options()); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *conn) open(ctx context.Context, user *redis.Options) (err error) {
	c.timeout, c.lifetime = boundedTimeout(user.ReadTimeout), user.ConnMaxLifetime
	timeout := user.DialTimeout
	if timeout <= 0 {
		timeout = defaultDialTimeout
	}
	c.net, err = open(ctx, user, opening{
		dial: timeout, whole: timeout + maxReadTimeout, ask: c.askServer, renewed: c.renew,
	})
	return err
}

// askServer asks the node who it is and gives it every script, in one round trip. A
// node may refuse either, for want of permission: it is unknown then, and answers
// NOSCRIPT later and is sent the source. Any other failure is the connection's. A node
// that is busy with a script refuses nearly everything: it is tried again later.
func (c *conn) askServer(ctx context.Context, cn *redis.Conn) error {
	var info *redis.Cmd
	cmds, err := cn.Pipelined(ctx, func(p redis.Pipeliner) error {
		info = p.Do(ctx, "info", "server")
		for _, script := range knownScripts() {
			p.ScriptLoad(ctx, script.source)
		}
		return nil
	})
	at := time.Now()
	if err != nil && !isAnswer(err) {
		return err
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && (!isAnswer(err) || redis.HasErrorPrefix(err, "BUSY ")) {
			return err
		}
		// A node that has sent a reply too many answers the next command with the last.
		if loaded, is := cmd.(*redis.StringCmd); is && loaded.Err() == nil && len(loaded.Val()) != shaLength {
			return errUnasked
		}
	}
	text, _ := info.Val().(string)
	if text == "QUEUED" { // OnConnect has left a MULTI open
		return errUnasked
	}
	c.server = parseInfo(text, at)
	return nil
}

// opening says how a connection is opened.
type opening struct {
	dial, whole time.Duration // how long the dial may take, and all of it
	renewed     func()        // called when the credentials that were used have been replaced

	// ask asks what its caller wants to know, once the greeting is complete. An error
	// fails the connection.
	ask func(context.Context, *redis.Conn) error
}

// open returns a connection to the node of a user's client, which has been greeted as
// that client would. It is the caller's alone, and has no deadlines. The end of ctx closes
// it.
func open(ctx context.Context, user *redis.Options, how opening) (_ net.Conn, err error) {
	opened, step := &ownConn{}, ""
	defer func() {
		if err != nil {
			_ = opened.Close()
			err = noAnswer(step, err)
		}
	}()
	defer recovered(&err) // the Dialer is the user's
	bounded, cancel := context.WithTimeout(ctx, how.whole)
	defer cancel()
	step = "pool: handshake: "
	opt := ownOptions(user)
	if opened.credentials, err = follow(bounded, opt, how.renewed); err != nil {
		return nil, err
	}
	step = ""
	dialing, cancel := context.WithTimeout(bounded, how.dial)
	defer cancel()
	dialed, err := user.Dialer(dialing, user.Network, user.Addr)
	if err != nil {
		return nil, hintedDial(err, user) // dialed may be a nil *tls.Conn
	}
	opened.Conn = dialed
	context.AfterFunc(ctx, func() { _ = opened.Close() })
	step = "pool: handshake: "
	return opened, hinted(greet(bounded, opt, opened.Conn, how.ask))
}

// greet makes go-redis greet the node at the other end of conn, and then ask.
//
// What go-redis returns for its commands is no proof of a greeting: it has been seen to
// report success for commands that it never sent (v9.23.0, Pipelined). That it calls
// OnConnect is one, because it does so last, when nothing has failed. So OnConnect is
// where the pool asks, and where it takes the connection back. The command that made
// go-redis connect is never sent.
//
// At that moment go-redis is done with the connection. What it does by itself either
// does not run here (the drainer of client-side caches, maintenance notifications,
// MinIdleConns, dials repeated after a failure, renewal of credentials) or waits until
// a connection is put back into its pool (checks of idle ones), and this one is not.
func greet(ctx context.Context, opt *redis.Options, conn net.Conn, ask func(context.Context, *redis.Conn) error) (err error) {
	lent := newLentConn(conn)
	greeted, used := false, false
	onConnect := opt.OnConnect
	var failed error // what go-redis would unwrap
	opt.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		if onConnect != nil {
			failed = onConnect(ctx, cn)
		}
		if failed == nil && ask != nil {
			failed = ask(ctx, cn)
		}
		if failed == nil {
			failed = lent.takeBack()
		}
		greeted = failed == nil
		return cmp.Or(failed, errTakenBack)
	}
	opt.Dialer = func(context.Context, string, string) (net.Conn, error) {
		if used {
			return nil, errLost
		}
		used = true
		return lent, nil
	}
	defer recovered(&err)
	client := redis.NewClient(opt)
	defer func() { _ = client.Close() }()
	err = client.Ping(ctx).Err()
	switch {
	case greeted:
		return nil
	case failed != nil:
		return failed
	case err == nil:
		return errors.New("go-redis has not greeted the node")
	}
	return lent.explained(err)
}

var (
	errTakenBack = errors.New("pool: the connection has been taken back")
	errLost      = errors.New("a connection is opened once")
)

// An ownConn is a connection of the pool's own, and the credentials that it was greeted
// with.
type ownConn struct {
	net.Conn     // nil until it is dialed
	*credentials // nil but with a StreamingCredentialsProvider
}

// Close implements net.Conn. A Dialer of the user's may have returned anything.
func (c *ownConn) Close() (err error) {
	defer c.credentials.release()
	defer recovered(&err)
	if c.Conn == nil {
		return nil
	}
	return c.Conn.Close()
}

// credentials are those of a StreamingCredentialsProvider, for one connection. When the
// provider replaces them the connection is exchanged for one that is greeted with the
// new ones: go-redis would send AUTH, on a connection that lies idle in its pool.
type credentials struct {
	renewed func() // what exchanges the connection

	mu          sync.Mutex
	unsubscribe auth.UnsubscribeFunc
	latest      auth.Credentials
	used        bool // by the greeting, as name and password
	name        string
	password    string
}

// follow makes opt ask the user's provider, if there is one, for one connection. It waits
// for the provider until ctx is done.
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
		go func() { // it may answer still
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
	if c.latest == nil { // else it has been replaced already
		c.latest = first
	}
	return nil
}

// use returns the credentials to greet with.
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

// errNoPassword is for what go-redis would greet as the default user, without a word.
var errNoPassword = errors.New("the StreamingCredentialsProvider gave a name without a password")

// OnNext implements auth.CredentialsListener.
func (c *credentials) OnNext(next auth.Credentials) {
	if next != nil && c.replace(next) {
		c.renewed()
	}
}

// replace notes the credentials that are valid now, and reports whether the greeting
// has used others.
func (c *credentials) replace(next auth.Credentials) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = next
	name, password := next.BasicAuth()
	return c.used && (name != c.name || password != c.password)
}

// OnError implements auth.CredentialsListener. The connection goes on with what it was
// greeted with. Where that is not enough the node ends it, and the next greeting fails.
func (*credentials) OnError(error) {}

// release ends the subscription to the provider, which may take its time. c may be nil.
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
		var err error // go-redis does not look at it either
		defer recovered(&err)
		err = unsubscribe()
	}()
}

// A lentConn is a connection that go-redis has until it is taken back. From then on
// nothing that go-redis does reaches it.
//
// What go-redis reads from it are replies that have been read before, whole, by the
// pool's own decoder. go-redis makes room for what a peer announces before it has come,
// and goes as deep as arrays are nested: three lines of nonsense could end the process.
type lentConn struct {
	net.Conn
	state atomic.Int32

	// Of the one who reads.
	replies *bufio.Reader // fills arrived as it reads
	arrived bytes.Buffer  // what go-redis has not been given
	heard   bool          // something has arrived
	whole   int           // so much of arrived is a reply
	broken  error         // what has ended the reading
	refused error         // the last reply, if it was an error
}

const (
	lent = iota
	takenBack
	closed
)

// maxGreeting bounds what one reply of the greeting takes in memory, the replies to
// the user's OnConnect included.
const maxGreeting = 1 << 20

func newLentConn(conn net.Conn) *lentConn {
	c := &lentConn{Conn: conn}
	c.replies = bufio.NewReaderSize(arrivals{c}, readBuffer)
	return c
}

// arrivals is what a lentConn decodes: it keeps a copy.
type arrivals struct{ *lentConn }

func (a arrivals) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	a.arrived.Write(p[:n])
	a.heard = a.heard || n > 0
	return n, err
}

// takeBack ends the lending and leaves the connection without deadlines, or returns an
// error when go-redis has closed it or the node has sent more than it was asked for.
func (c *lentConn) takeBack() error {
	switch {
	case !c.state.CompareAndSwap(lent, takenBack):
		return net.ErrClosed
	case c.arrived.Len() > 0:
		return errUnasked
	}
	return c.Conn.SetDeadline(time.Time{})
}

// Close closes the connection while it is lent.
func (c *lentConn) Close() error {
	if c.state.CompareAndSwap(lent, closed) {
		return c.Conn.Close()
	}
	return nil
}

// Read returns bytes of one reply at a time.
func (c *lentConn) Read(p []byte) (int, error) {
	if c.state.Load() != lent {
		return 0, net.ErrClosed
	}
	if c.whole == 0 {
		if err := c.readReply(); err != nil {
			return 0, err
		}
	}
	n, _ := c.arrived.Read(p[:min(len(p), c.whole)]) // as much is there
	c.whole -= n
	return n, nil
}

// readReply waits until the next reply is there.
func (c *lentConn) readReply() error {
	if c.broken != nil {
		return c.broken
	}
	d := decoder{Reader: c.replies, left: maxGreeting}
	value, err := d.value(0)
	if err != nil {
		c.broken = err
		return err
	}
	c.refused = nil
	if refused, ok := value.(refusal); ok {
		c.refused = refused
	}
	c.whole = c.arrived.Len() - c.replies.Buffered()
	return nil
}

// explained adds to why a greeting has failed what the node said before it ended the
// connection: one that has too many clients says so at once, and go-redis goes on.
func (c *lentConn) explained(err error) error {
	if c.refused == nil || isAnswer(err) {
		return c.plainHint(err)
	}
	return fmt.Errorf("%w (the node has answered: %w)", err, c.refused)
}

func (c *lentConn) Write(p []byte) (int, error) {
	if c.state.Load() != lent {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// SetDeadline implements net.Conn.
func (c *lentConn) SetDeadline(t time.Time) error {
	if c.state.Load() != lent {
		return net.ErrClosed
	}
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *lentConn) SetReadDeadline(t time.Time) error {
	if c.state.Load() != lent {
		return net.ErrClosed
	}
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *lentConn) SetWriteDeadline(t time.Time) error {
	if c.state.Load() != lent {
		return net.ErrClosed
	}
	return c.Conn.SetWriteDeadline(t)
}

// ownOptions copies the options of a user's client for a client that greets a node on
// one connection. Every difference is one that the contract of Pool needs.
func ownOptions(user *redis.Options) *redis.Options {
	opt := *user
	opt.ContextTimeoutEnabled = true // one bound for all of the greeting
	opt.MaxRetries = -1              // what fails fails once
	opt.DialerRetries = 1            // a dead node is told at once
	opt.Protocol = 2                 // nothing is pushed, so that every reply is the answer to a request
	opt.ReadTimeout = boundedTimeout(opt.ReadTimeout)
	opt.WriteTimeout = boundedTimeout(opt.WriteTimeout)

	// One connection is used. The second pool is where go-redis looks when the
	// first fails to dial.
	opt.PoolSize, opt.PipelinePoolSize = 2, 2
	opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = 0, 0, 0
	opt.MaxConcurrentDials = 0
	opt.PoolTimeout = 0

	// What could answer in the node's place, or delay or divert a command.
	opt.Limiter = nil
	opt.AutoPipelineOptions = nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.ClientSideCacheConfig, opt.ClientSideCache = nil, nil
	opt.PushNotificationProcessor = nil // go-redis has put the one of the user's client here
	return &opt
}

// boundedTimeout takes an I/O timeout as go-redis stores it, where 0 and less
// mean none.
func boundedTimeout(d time.Duration) time.Duration {
	if d <= 0 || d > maxReadTimeout {
		return maxReadTimeout
	}
	return d
}
