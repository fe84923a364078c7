package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/cli"
)

// config holds the flags.
type config struct {
	addresses []string // of -nodes; none for embedded nodes
	clients   []*redis.Options
	runFor    time.Duration
	workers   int
	name      string
	expiry    time.Duration
}

const (
	maxWorkers = 100
	minExpiry  = 100 * time.Millisecond
	maxExpiry  = time.Hour
)

// parseFlags reads and checks the command line. Its errors are for cli.Status.
func parseFlags(args []string) (config, error) {
	var cfg config
	var nodes string
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.StringVar(&nodes, "nodes", "",
		"comma-separated `addresses`, host:port or redis:// URLs; none: five nodes inside the process")
	flags.DurationVar(&cfg.runFor, "for", 15*time.Second, "how long to run: 0 (until interrupted) or more")
	flags.IntVar(&cfg.workers, "workers", 3, fmt.Sprintf("number of workers: 1 to %d", maxWorkers))
	flags.StringVar(&cfg.name, "name", "example-worker", "name of the lock: not empty")
	flags.DurationVar(&cfg.expiry, "expiry", 2*time.Second,
		fmt.Sprintf("expiry of the lock: %v to %v", minExpiry, maxExpiry))
	if err := cli.Parse(flags, args); err != nil {
		return config{}, err
	}
	if err := cfg.check(); err != nil {
		return config{}, err
	}
	return cfg, cfg.parseNodes(nodes)
}

func (cfg *config) check() error {
	switch {
	case cfg.runFor < 0:
		return cli.Misusef("-for %v is out of range: 0 (until interrupted) or more", cfg.runFor)
	case cfg.workers < 1 || cfg.workers > maxWorkers:
		return cli.Misusef("-workers %d is out of range: 1 to %d", cfg.workers, maxWorkers)
	case cfg.name == "":
		return cli.Misusef("-name %q is out of range: it must not be empty", cfg.name)
	case cfg.expiry < minExpiry || cfg.expiry > maxExpiry:
		return cli.Misusef("-expiry %v is out of range: %v to %v", cfg.expiry, minExpiry, maxExpiry)
	}
	return nil
}

// parseNodes reads the value of -nodes.
func (cfg *config) parseNodes(list string) error {
	if list == "" {
		return nil
	}
	seen := make(map[string]bool)
	for address := range strings.SplitSeq(list, ",") {
		address = strings.TrimSpace(address)
		options, err := parseAddress(address)
		if err != nil {
			return cli.Misusef("-nodes: %w", err)
		}
		if seen[options.Addr] {
			return cli.Misusef("-nodes: %s is there twice: each node counts once", options.Addr)
		}
		seen[options.Addr] = true
		cfg.addresses = append(cfg.addresses, address)
		cfg.clients = append(cfg.clients, options)
	}
	return nil
}

// parseAddress reads one address as redsync.Open does. Its error does not repeat
// a URL, which may hold a password.
func parseAddress(address string) (*redis.Options, error) {
	if strings.Contains(address, "://") {
		options, err := redis.ParseURL(address)
		if err != nil { // its text may quote the URL
			return nil, errors.New("a URL is not of the form redis://user:password@host:port")
		}
		return options, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" {
		return nil, fmt.Errorf("%q is not of the form host:port or redis://host:port", address)
	}
	return &redis.Options{Addr: address}, nil
}
