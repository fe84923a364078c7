package wire

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// This file finds out that a client of one address leads to a node of a Redis Cluster, which serves only its own slots.

// A share is what is known of the part of all keys that a node serves.
type share struct{ why atomic.Pointer[error] }

func (s *share) Partial() error {
	if why := s.why.Load(); why != nil {
		return *why
	}
	return nil
}

func (s *share) set(why error) { s.why.Store(&why) }

func isElsewhere(err error) bool { return answers(err, "MOVED ") || answers(err, "ASK ") }

// heard explains an error that says that another node serves the key.
func (s *share) heard(err error) error {
	if !isElsewhere(err) {
		return err
	}
	s.set(errPartial)
	return fmt.Errorf("%w: %w", errPartial, err)
}

// learn asks a Cluster's node for its slots: a single master may have all.
func (s *share) learn(ctx context.Context, mode string, do func(ctx context.Context, args ...any) *redis.Cmd) error {
	if mode == "" {
		return nil // not known, so nothing changes
	}
	if mode != clusterMode {
		s.set(nil)
		return nil
	}
	nodes, err := do(ctx, "cluster", "nodes").Text()
	switch {
	case err == nil && hasAllSlots(nodes):
		s.set(nil)
	case err == nil:
		s.set(errPartial)
	case isAnswer(err): // for lack of permission
		s.set(fmt.Errorf("%w: unless it has all slots, which it does not let the client ask: %w", errPartial, err))
	default:
		return err
	}
	return nil
}

const clusterMode = "cluster"

func modeIn(hello any) string {
	pairs, _ := hello.([]any)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == "mode" {
			mode, _ := pairs[i+1].(string)
			return mode
		}
	}
	return ""
}

// hasAllSlots reads an answer to CLUSTER NODES.
func hasAllSlots(nodes string) bool {
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) > 8 && strings.HasPrefix(fields[2], "myself,master") {
			return fields[8] == "0-16383"
		}
	}
	return false
}
