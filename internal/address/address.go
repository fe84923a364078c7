// Package address reads the addresses of nodes as users write them.
package address

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options returns the options of a client for pool.New, without pool sizes: these have no effect, and go-redis panics
// on some.
func Options(address string) (*redis.Options, error) {
	opt, err := parse(address)
	if err != nil {
		return nil, err
	}
	opt.PoolSize, opt.PipelinePoolSize, opt.MaxConcurrentDials = 0, 0, 0
	opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = 0, 0, 0
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return opt, nil
}

// parse reads "host:port", or a redis://, rediss:// or unix:// URL. Its error hides what may be a password.
func parse(address string) (*redis.Options, error) {
	if strings.Contains(address, "://") {
		opt, err := redis.ParseURL(address)
		switch {
		case !strings.ContainsAny(address, "@?") && hasOddPort(address):
			return nil, fmt.Errorf("%q cannot be parsed as a URL: the port is not a number (a password stands before an @)", Redacted(address+"@"))
		case err == nil:
			return opt, nil
		case !strings.ContainsAny(address, "@?") && Redacted(address) == address: // the parser's error quotes no secret
			return nil, fmt.Errorf("%q: %w", address, err)
		}
		return nil, fmt.Errorf("%q cannot be parsed as a URL%s", Redacted(address), urlHint(address))
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" || strings.ContainsAny(address, "@?") {
		return nil, fmt.Errorf("%q is not of the form host:port or redis://", Redacted(address))
	}
	return &redis.Options{Addr: address}, nil
}

// hasOddPort reports whether the port of a URL is no number: perhaps a password.
func hasOddPort(address string) bool {
	_, authority, _ := strings.Cut(address, "://")
	authority, _, _ = strings.Cut(authority, "/")
	_, port, ok := strings.Cut(authority[strings.LastIndexByte(authority, ']')+1:], ":")
	_, err := strconv.Atoi(port)
	return ok && err != nil
}

// urlHint says what may be wrong with a URL.
func urlHint(address string) string {
	query := ""
	if i := strings.IndexByte(address, '?'); i >= 0 {
		query = strings.ToLower(address[i:])
	}
	switch {
	case strings.Contains(query, "password=") || strings.Contains(query, "username="):
		return ": user and password stand before the host, as in redis://user:password@host:port"
	case strings.Contains(address, "@"):
		return ": characters such as @ / # % in a user or password must be percent-encoded (url.UserPassword does that)"
	}
	if query == "" {
		return ": the password stands before the host, as in redis://:password@host:port"
	}
	return ": an option after the ? is unknown, or its value is bad"
}

// Redacted cuts what may be a password: before the last @, after a ?, and after the host if it is more than a port.
func Redacted(address string) string {
	start, rest := "", address
	if scheme, after, ok := strings.Cut(address, "://"); ok && !strings.ContainsAny(scheme, ":@?") {
		start, rest = scheme+"://", after
	}
	query := strings.IndexByte(rest, '?')
	at := strings.LastIndexByte(rest, '@')
	end := ""
	switch {
	case query >= 0 && at > query: // either of them may belong to a password
		return start + "..."
	case query >= 0:
		rest, end = rest[:query], "?..."
	}
	if at >= 0 {
		start, rest = start+"...@", rest[at+1:]
	}
	return start + hostAndPort(rest) + end
}

// hostAndPort applies WithoutPassword to a URL without its scheme.
func hostAndPort(rest string) string {
	authority, _, _ := strings.Cut(rest, "/")
	if cut := WithoutPassword(authority); cut != authority {
		return cut
	}
	return rest
}

// WithoutPassword cuts what follows the host if it is more than a port, as in host:port:password.
func WithoutPassword(address string) string {
	from := 0 // an IPv6 address in brackets has colons of its own
	if strings.HasPrefix(address, "[") {
		from = strings.IndexByte(address, ']') + 1
	}
	if strings.Count(address[from:], ":") < 2 || net.ParseIP(address) != nil {
		return address
	}
	return address[:from+strings.IndexByte(address[from:], ':')] + ":..."
}
