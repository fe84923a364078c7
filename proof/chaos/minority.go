package main

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file defines the faults of the scene bad-node in which a node answers, but lies, moves or refuses to write. It
// also judges what clients are told of nodes, and the tokens that they get.

// The kinds of events by which a process notes what its hooks are told.
const (
	toldDown       history.Kind = "told: node down"
	toldUp         history.Kind = "told: node up"
	toldOneServer  history.Kind = "told: one server"
	toldTwoServers history.Kind = "told: two servers"
	toldIgnored    history.Kind = "told: register ignored"
)

// A teller notes what the library tells of nodes. The log of the library has the same events.
type teller struct{ *crowd }

func (t teller) tell(k history.Kind, node int, what string) {
	t.log.Note(history.Event{At: t.now(), Kind: k, Where: nodeRow(node), Process: strconv.Itoa(t.Process), What: what})
}

func (t teller) hooks() *observe.Hooks {
	return &observe.Hooks{
		NodeDown:   func(_ context.Context, d observe.NodeDown) { t.tell(toldDown, d.Node, text(d.Err)) },
		NodeUp:     func(_ context.Context, u observe.NodeUp) { t.tell(toldUp, u.Node, "") },
		OneServer:  func(_ context.Context, o observe.OneServer) { t.tell(toldOneServer, o.Nodes[1], fmt.Sprint(o.Nodes)) },
		TwoServers: func(_ context.Context, o observe.TwoServers) { t.tell(toldTwoServers, o.Nodes[1], fmt.Sprint(o.Nodes)) },
		RegisterIgnored: func(_ context.Context, r observe.RegisterIgnored) {
			t.tell(toldIgnored, r.Node, text(r.Err))
		},
	}
}

// The rules by which this file judges.
const (
	farToken  = "token far from the clock"
	toldOften = "node not told down and up once"
)

// farTokens finds the tokens that are ahead of the clock. origin is the origin of the events' times.
func farTokens(events []history.Event, origin time.Time) (found []history.Violation) {
	for _, e := range events {
		limit := origin.Add(e.At + time.Second).UnixMicro()
		if e.Kind == history.Held && e.Token > uint64(limit) { //nolint:gosec // it is positive
			what := fmt.Sprintf("%s has token %d", e.ID(), e.Token)
			found = append(found, history.Violation{Rule: farToken, Name: e.Name, At: e.At, What: what})
		}
	}
	return found
}

// toldAgain finds where a process was told more than once that a node was down, while the node had one fault of these
// kinds. It also finds where a process was not told that a node was up again.
func toldAgain(events []history.Event, kinds ...kind) (found []history.Violation) {
	type ear struct{ node, process string }
	during := map[string]int{}      // by node: the number of its fault, 0 if it has none
	last := map[ear]int{}           // during which fault the process was told last
	down := map[ear]history.Event{} // told down, and not yet up
	broken := func(e history.Event, what string) {
		what = fmt.Sprintf("%s, process %s: %s: %s", e.Where, e.Process, what, e.What)
		found = append(found, history.Violation{Rule: toldOften, At: e.At, What: what})
	}
	for i, e := range events {
		of := ear{e.Where, e.Process}
		switch e.Kind {
		case history.Fault:
			if slices.ContainsFunc(kinds, func(k kind) bool { return strings.HasPrefix(e.What, string(k)+" for ") }) {
				during[e.Where] = i + 1
				if e.Ends {
					during[e.Where] = 0
				}
			}
		case toldDown:
			if now := during[e.Where]; now != 0 && last[of] == now {
				broken(e, "told down again")
			}
			last[of] = during[e.Where]
			down[of] = e
		case toldUp:
			delete(down, of)
		}
	}
	for _, e := range down {
		broken(e, "told down, and never up")
	}
	return found
}

// failToSave makes the node refuse writes because its last attempt to save its data has failed.
func (n *node) failToSave(ctx context.Context) (heal func() error, err error) {
	inTheWay := filepath.Join(n.dir, "dump.rdb") // a directory that is not empty cannot be replaced by a file
	heal = func() error {
		_ = os.RemoveAll(inTheWay)
		return n.do(ctx, "CONFIG", "SET", "save", "")
	}
	if err := os.MkdirAll(filepath.Join(inTheWay, "full"), 0o700); err != nil {
		return heal, err
	}
	if err := n.do(ctx, "CONFIG", "SET", "save", "3600 1"); err != nil {
		return heal, err
	}
	if err := n.do(ctx, "BGSAVE", "SCHEDULE"); err != nil {
		return heal, err
	}
	for end := time.Now().Add(patience); time.Now().Before(end); pause(ctx, 10*ms) {
		said, err := n.direct.Info(ctx, "persistence").Result()
		if err != nil || strings.Contains(said, "rdb_last_bgsave_status:err") {
			return heal, err
		}
	}
	return heal, fmt.Errorf("node %d does not fail to save its data", n.index)
}

// misdirect breaks the connections to the nodes of f, and makes new ones lead to the node before the first of them. The
// keys that stay on the nodes of f may be those of a client that cannot release them now.
func (w *world) misdirect(ctx context.Context, f fault) (heal func() error, err error) {
	to := w.nodes[(f.Nodes[0]+len(w.nodes)-1)%len(w.nodes)].server.Addr()
	heal = all(w.linksOf(f), func(l *link) func() { return l.leadTo(to) })
	for _, i := range f.Nodes {
		if err := w.noteLeft(ctx, w.nodes[i]); err != nil {
			return heal, err
		}
	}
	return heal, nil
}

// noteLeft notes the keys of all locks on n as left by a crashed client.
func (w *world) noteLeft(ctx context.Context, n *node) error {
	at := w.now()
	found, err := n.direct.Eval(ctx, lookAtKeys, nil).Slice()
	for i := 0; i+1 < len(found); i += 2 {
		key, _ := found[i].(string)
		ttl, _ := found[i+1].(int64)
		e := keyEvent(at, n.index, key, ttl)
		if e.Name == "" {
			continue
		}
		left := history.Event{At: at, Kind: history.Left, Node: n.index, Name: e.Name, Until: w.now() + e.TTL}
		for _, l := range semaphores {
			if l.name == e.Name {
				left.Permits = l.permits
			}
		}
		w.log.Note(left)
	}
	return err
}

// farValues are values of fencing registers that no client can have written.
var farValues = []string{"10000000000000000", "18446744073709551615"}

// setFarRegisters sets the fencing registers of all names on the nodes of f. heal deletes them.
func (w *world) setFarRegisters(ctx context.Context, f fault) (heal func() error, err error) {
	var keys []any
	for _, l := range allNames() {
		if l.fenced {
			keys = append(keys, script.FenceKey(l.name))
		}
	}
	heal = func() (err error) {
		for _, i := range f.Nodes {
			err = errors.Join(err, w.nodes[i].do(ctx, append([]any{"DEL"}, keys...)...))
		}
		return err
	}
	for _, i := range f.Nodes {
		for _, key := range keys {
			if err := w.nodes[i].do(ctx, "SET", key, farValues[f.Seed%2], "PX", fenceTTL.Milliseconds()); err != nil {
				return heal, err
			}
		}
	}
	return heal, nil
}

// makeLists is a script that puts a list at each key, for a second.
var makeLists = redis.NewScript(`
for _, key in ipairs(KEYS) do
  if redis.call('TYPE', key).ok ~= 'list' then
    redis.call('DEL', key)
    redis.call('RPUSH', key, 'a list')
  end
  redis.call('PEXPIRE', key, 1000)
end`)

// setOtherTypes puts lists at the queues on the nodes of f. A node does not grant a fair lock without a queue, nor a
// fenced one without a register. So for these names there are lists on the first of the nodes only. All lists are gone a
// second after the end of the fault.
func (w *world) setOtherTypes(ctx context.Context, _ *mathrand.Rand, f fault) error {
	for _, i := range f.Nodes {
		spares := i != f.Nodes[0]
		var keys []string
		for _, l := range allNames() {
			queue := script.QueueKey(l.name)
			if l.permits != 0 {
				queue = script.SlotQueueKey(l.name)
			}
			if !l.fair || !spares {
				keys = append(keys, queue)
			}
			if l.fenced && !spares {
				keys = append(keys, script.FenceKey(l.name))
			}
		}
		if err := makeLists.Run(ctx, w.nodes[i].direct, keys).Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	pause(ctx, 200*ms)
	return nil
}
