package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/address"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// nodes are the flags that say which nodes there are, and how to connect to them.
type nodes struct {
	list, file, before, after string
	cacert, cert, key         string
	guard                     time.Duration
	anonymous                 bool   // the nodes' run ids do not tell servers apart
	prefix                    string // of each NAME: from parsing on, names have it

	given func(flag string) bool // whether the flag is among the arguments
	sets  [][]*redis.Options     // one set, or the sets before and after
}

func (n *nodes) define(f *pflag.FlagSet) {
	f.StringVar(&n.list, "nodes", "", "")
	f.StringVar(&n.file, "nodes-file", "", "")
	f.StringVar(&n.before, "before", "", "")
	f.StringVar(&n.after, "after", "", "")
	f.StringVar(&n.cacert, "cacert", "", "")
	f.StringVar(&n.cert, "cert", "", "")
	f.StringVar(&n.key, "key", "", "")
	f.StringVar(&n.prefix, "prefix", "", "")
	f.Var((*seconds)(&n.guard), "guard", "")
	f.BoolVar(&n.anonymous, "no-identity", false, "")
	n.given = f.Changed
}

// check returns an error if flags exclude each other, or need each other.
func (n *nodes) check() error {
	given := n.given
	switch {
	case given("nodes") && given("nodes-file"):
		return wrong("--nodes and --nodes-file exclude each other")
	case given("before") != given("after"):
		return wrong("--before and --after need each other")
	case given("before") && (given("nodes") || given("nodes-file")):
		return wrong("--before and --after exclude --nodes and --nodes-file")
	case given("cert") != given("key"):
		return wrong("--cert and --key need each other")
	case given("guard") && n.guard <= 0:
		return wrong("--guard %v is out of range: more than 0", n.guard)
	case !script.MayBePrefix(n.prefix):
		return wrong("--prefix %q is out of range: no braces, except those of a hash tag, as in {app}:", n.prefix)
	}
	return nil
}

// read finds the addresses of the nodes, and how to connect to them.
func (n *nodes) read() error {
	if err := n.check(); err != nil {
		return err
	}
	if err := n.readSets(); err != nil {
		return err
	}
	return n.readTLS()
}

// readSets finds the addresses.
func (n *nodes) readSets() error {
	switch {
	case n.given("before"):
		return cmp.Or(n.add("--before", splitList(n.before)), n.add("--after", splitList(n.after)))
	case n.given("nodes"):
		return n.add("--nodes", splitList(n.list))
	case n.given("nodes-file"):
		lines, err := readList(n.file)
		if err != nil {
			return wrong("--nodes-file: %w", err)
		}
		return n.add("--nodes-file "+n.file, lines)
	}
	list := os.Getenv(nodesVariable)
	if list == "" {
		return wrong("which nodes? Give --nodes or --nodes-file, or set $%s", nodesVariable)
	}
	return n.add("$"+nodesVariable, splitList(list))
}

// add makes a set of addresses. from is where they come from.
func (n *nodes) add(from string, addresses []string) error {
	if len(addresses) == 0 {
		return wrong("%s has no address", from)
	}
	var set []*redis.Options
	for i, text := range addresses {
		opt, err := address.Options(text)
		if err != nil {
			return wrong("%s: address #%d: %w", from, i+1, err)
		}
		set = append(set, opt)
	}
	n.sets = append(n.sets, set)
	return nil
}

// splitList returns the addresses of a list with commas.
func splitList(list string) []string {
	var addresses []string
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text != "" {
			addresses = append(addresses, text)
		}
	}
	return addresses
}

// byteOrderMark is what some editors write at the beginning of a file.
const byteOrderMark = "\ufeff"

// readList returns the addresses in a file.
func readList(path string) ([]string, error) {
	file, err := os.Open(path) //nolint:gosec // the user has named it
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var addresses []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if text := strings.TrimSpace(strings.TrimPrefix(lines.Text(), byteOrderMark)); text != "" && !strings.HasPrefix(text, "#") {
			addresses = append(addresses, text)
		}
	}
	return addresses, lines.Err()
}

// readTLS reads the files for rediss:// addresses.
func (n *nodes) readTLS() error {
	if !n.given("cacert") && !n.given("cert") {
		return nil
	}
	var roots *x509.CertPool
	if n.given("cacert") {
		text, err := os.ReadFile(n.cacert)
		if err != nil {
			return wrong("--cacert: %w", err)
		}
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM(text) {
			return wrong("--cacert: %s has no certificate in PEM format", n.cacert)
		}
	}
	var own []tls.Certificate
	if n.given("cert") {
		pair, err := tls.LoadX509KeyPair(n.cert, n.key)
		if err != nil {
			return wrong("--cert and --key: %w", err)
		}
		own = []tls.Certificate{pair}
	}
	used := false
	for _, set := range n.sets {
		for _, opt := range set {
			if opt.TLSConfig != nil {
				opt.TLSConfig.RootCAs, opt.TLSConfig.Certificates, used = roots, own, true
			}
		}
	}
	if !used {
		return wrong("--cacert, --cert and --key have no effect: no address begins with rediss://")
	}
	return nil
}

// sayUnverified says which nodes have an address that turns the verification of certificates off.
func (n *nodes) sayUnverified(say func(string)) {
	var addresses []string
	for _, opt := range slices.Concat(n.sets...) {
		if opt.TLSConfig != nil && opt.TLSConfig.InsecureSkipVerify && !slices.Contains(addresses, opt.Addr) {
			addresses = append(addresses, opt.Addr)
		}
	}
	if len(addresses) > 0 {
		say("skip_verify is set for " + strings.Join(addresses, ", ") +
			": nobody checks the certificate, so whoever stands between can read the password and answer in place of the node")
	}
}

// closeTimeout bounds the wait for releases that no quorum has confirmed.
const closeTimeout = 2 * time.Second

// open returns a Redsync on the nodes, without asking them.
func (n *nodes) open() *redsync.Redsync {
	var sets [][]pool.Pool
	for _, set := range n.sets {
		var pools []pool.Pool
		for _, opt := range set {
			var options []pool.Option
			if n.guard > 0 {
				options = append(options, pool.WithRestartGuard(n.guard))
			}
			if n.anonymous {
				options = append(options, pool.WithoutIdentity())
			}
			pools = append(pools, pool.New(redis.NewClient(opt), options...))
		}
		sets = append(sets, pools)
	}
	if len(sets) == 2 {
		return redsync.NewJoint(sets[0], sets[1])
	}
	return redsync.New(sets[0]...)
}

// connect returns a Redsync on the nodes once a quorum has answered. If it waits, it asks again until ctx ends, unless the
// reason is one that stays, and says once that it does. The options are those that Ping looks at: a restart guard bounds the
// expiry. Its error has an exit status.
func (n *nodes) connect(
	ctx context.Context, waits bool, say func(string), options ...redsync.Option,
) (*redsync.Redsync, error) {
	rs := n.open().With(options...)
	err := rs.Ping(ctx)
	for said := false; waits && errors.Is(err, redsync.ErrNoQuorum) && !n.refuseForGood(err); said = true {
		if !said {
			say("cannot connect yet, and waits: " + err.Error())
		}
		if !pause(ctx, connectPause) {
			break
		}
		again := rs.Ping(ctx)
		if again != nil && !errors.Is(again, redsync.ErrNoQuorum) && ctx.Err() != nil {
			break // the wait was ended, so the error before says more
		}
		err = again
	}
	if err != nil {
		status := exitUsage
		if errors.Is(err, redsync.ErrNoQuorum) || ctx.Err() != nil {
			status = exitNoQuorum
		}
		return nil, &failure{status, fmt.Errorf("cannot connect: %w", err)}
	}
	return rs, nil
}

// connectPause is the time between two attempts to connect.
const connectPause = 250 * time.Millisecond

// pause waits for d. It reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// refuseForGood reports whether err, that of Ping, has so many reasons that stay until somebody changes something that no
// quorum is possible.
func (n *nodes) refuseForGood(err error) bool {
	stays := make(map[string]bool) // by address
	for _, e := range leaves(err) {
		var node *redsync.RedisError
		if errors.As(e, &node) && staysWrong(node.Err) {
			stays[node.Address] = true
		}
	}
	for _, set := range n.sets {
		wrong := 0
		for _, opt := range set {
			if stays[opt.Addr] {
				wrong++
			}
		}
		if len(set)-wrong < len(set)/2+1 {
			return true
		}
	}
	return false
}

// leaves returns the errors of which err is joined, each with what it wraps.
func leaves(err error) (all []error) {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case *redsync.RedisError:
		return []error{e}
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			all = append(all, leaves(one)...)
		}
	case interface{ Unwrap() error }:
		return leaves(e.Unwrap())
	}
	return all
}

// staysWrong reports whether the reason for which a node does not answer is one that does not pass: the node refuses the
// user, its certificate is not accepted, or its host is not known.
func staysWrong(err error) bool {
	var host *net.DNSError
	var certificate *tls.CertificateVerificationError
	return pool.IsPermanent(err) || errors.As(err, &certificate) || errors.As(err, &host) && host.IsNotFound
}

// newMutex returns a Mutex of one name, or of several.
func newMutex(rs *redsync.Redsync, names []string, options ...redsync.Option) *redsync.Mutex {
	if len(names) == 1 {
		return rs.NewMutex(names[0], options...)
	}
	return rs.NewMultiMutex(names, options...)
}
