package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// A node is one redis-server. It hands every write to the kernel before it answers. So a killed
// process loses nothing, and busy disks delay no client. (Surviving a power failure would need
// appendfsync always.)
type node struct {
	index  int
	dir    string
	clock  *nodeClock
	server *realredis.Server
	direct *redis.Client // connected without a proxy

	dead    atomic.Bool // a deployment has killed it for good
	strayed bool        // lookForStrays has seen keys in database 0; no other function uses it

	fault sync.Mutex // inflict holds it while the node has an exclusive fault
}

// The user, password and database of clients. A connection whose greeting (AUTH and SELECT) was refused still works,
// because Redis's default user needs no password. So a client that overlooks the refusal writes to database 0.
const (
	lockUser     = "locker"
	lockPassword = "right"
	lockDatabase = 3
)

// patience is how long a server on a busy machine may take to answer.
const patience = 10 * time.Second

// startNode starts node i, with one of programs in turn if there are any.
func startNode(i int, dir, fakeTime string, programs []string) (*node, error) {
	n := &node{index: i, dir: filepath.Join(dir, fmt.Sprintf("node%d", i))}
	err := os.Mkdir(n.dir, 0o700)
	if err != nil {
		return nil, err
	}
	if n.clock, err = newNodeClock(fakeTime, n.dir); err != nil {
		return nil, err
	}
	args := []string{
		"--appendonly", "yes", "--appendfsync", "no", "--maxmemory-policy", "noeviction",
		"--user", lockUser, "on", ">" + lockPassword, "~*", "&*", "+@all",
	}
	if len(programs) > 0 {
		n.server, err = realredis.LaunchProgram(programs[i%len(programs)], n.dir, n.clock.env(), args...)
	} else {
		n.server, err = realredis.LaunchWith(n.dir, n.clock.env(), args...)
	}
	if err != nil {
		return nil, err
	}
	n.direct = redis.NewClient(&redis.Options{
		Addr:        n.server.Addr(),
		DB:          lockDatabase,
		MaxRetries:  -1,
		ReadTimeout: patience, WriteTimeout: patience, DialTimeout: patience,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	return n, nil
}

// kill ends the process with SIGKILL.
func (n *node) kill() {
	pid := n.server.Pid()
	n.server.Kill()
	n.clock.tidy(pid)
}

// restart starts the killed process again and waits until it answers. Unless keepData is set, restart
// first removes the data.
func (n *node) restart(ctx context.Context, keepData bool) error {
	if !keepData {
		if err := os.RemoveAll(filepath.Join(n.dir, "appendonlydir")); err != nil {
			return err
		}
	}
	if err := n.clock.starting(); err != nil {
		return err
	}
	if err := n.server.Relaunch(); err != nil {
		return err
	}
	return n.awaitAnswer(ctx)
}

// awaitAnswer waits until the process has loaded its data.
func (n *node) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := n.direct.Ping(ctx).Err()
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, 5*time.Millisecond)
	}
}

// do runs a command on the node without a proxy.
func (n *node) do(ctx context.Context, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := n.direct.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("node %d: %v: %w", n.index, args, err)
	}
	return nil
}

// deleted returns how often clients have sent the node a command that compares and deletes, since it has started. has
// reports whether the server has one.
func (n *node) deleted(ctx context.Context) (times int, has bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all, err := n.direct.Command(ctx).Result()
	if err != nil {
		return 0, false, err
	}
	stats, err := n.direct.Info(ctx, "commandstats").Result()
	for _, name := range []string{"delex", "delifeq"} {
		has = has || all[name] != nil
		if _, calls, ok := strings.Cut(stats, "cmdstat_"+name+":calls="); ok {
			calls, _, _ = strings.Cut(calls, ",")
			count, _ := strconv.Atoi(calls)
			times += count
		}
	}
	return times, has, err
}

// disconnect ends all connections of clients.
func (n *node) disconnect(ctx context.Context) error {
	return errors.Join(n.do(ctx, "CLIENT", "KILL", "TYPE", "normal"), n.do(ctx, "CLIENT", "KILL", "TYPE", "pubsub"))
}

// refuse applies rules to the user of the clients with ACL SETUSER, and ends all connections of clients. heal undoes
// the rules.
func (n *node) refuse(ctx context.Context, rules ...any) (heal func() error, err error) {
	user := []any{"ACL", "SETUSER", lockUser}
	heal = func() error { return n.do(ctx, append(user, "resetpass", ">"+lockPassword, "+@all")...) }
	return heal, errors.Join(n.do(ctx, append(user, rules...)...), n.disconnect(ctx))
}

// stop ends the node for good.
func (n *node) stop() {
	n.server.Thaw()
	n.kill()
	_ = n.direct.Close()
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
