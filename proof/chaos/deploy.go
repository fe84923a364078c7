package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file replaces the processes of clients by processes with other nodes, while clients lock.

// A deployment says with which nodes the processes of clients run, until the next deployment replaces them. It
// names the nodes by their addresses. Address i leads to node i, or to node i modulo the number of nodes if there
// are fewer.
type deployment struct {
	before []int // the nodes; during a change, the nodes before it
	after  []int // the nodes after a change: the processes use NewJoint; nil: they use New
	far    []int // requests to these addresses take farAway longer
	dead   []int // nodes that are killed for good before the deployment begins
}

// farAway is less than the node deadline, so that far nodes take part.
const farAway = 120 * ms

// addresses returns the addresses of d, each once.
func (d deployment) addresses() []int {
	all := slices.Concat(d.before, d.after)
	slices.Sort(all)
	return slices.Compact(all)
}

func (d deployment) String() string {
	if d.after == nil {
		return "nodes " + list(d.before)
	}
	return "joint " + list(d.before) + " and " + list(d.after)
}

func list(numbers []int) string {
	var texts []string
	for _, n := range numbers {
		texts = append(texts, strconv.Itoa(n))
	}
	return strings.Join(texts, " ")
}

// span returns n addresses, beginning with first.
func span(first, n int) (addresses []int) {
	for i := range n {
		addresses = append(addresses, first+i)
	}
	return addresses
}

// moved returns the three deployments of a change from the nodes before to the nodes after.
func moved(before, after []int) []deployment {
	return []deployment{{before: before}, {before: before, after: after}, {before: after}}
}

// swapEach returns the deployments that swap each of nodeCount nodes for another one, one after another.
func swapEach() (all []deployment) {
	set := span(0, nodeCount)
	for i := range nodeCount {
		next := slices.Clone(set)
		next[i] = nodeCount + i
		all = append(all, moved(set, next)[:2]...)
		set = next
	}
	return append(all, deployment{before: set})
}

// swapUnjoined returns deployments that swap node 4 for node 5 without a joint set. The old processes are
// close to nodes 0, 1 and 4, and the new ones are close to nodes 2, 3 and 5. These two quorums share no node.
func swapUnjoined() []deployment {
	return []deployment{
		{before: []int{0, 1, 2, 3, 4}, far: []int{2, 3}},
		{before: []int{0, 1, 2, 3, 5}, far: []int{0, 1}},
	}
}

// nodeCount returns how many nodes run.
func (s scene) nodeCount() int {
	if s.nodes == 0 {
		return nodeCount
	}
	return s.nodes
}

// versions returns the deployments of the scene, at least one.
func (s scene) versions() []deployment {
	if s.deployments == nil {
		return []deployment{{before: span(0, s.nodeCount())}}
	}
	return s.deployments
}

// rolling is the least time that a new process runs before the next old one is replaced.
const rolling = 200 * ms

// deployAll replaces each deployment by the next one. It spreads the deployments over the time of the traffic. If that
// time is too short, they take longer, because each deployment needs its waits.
func (w *world) deployAll(ctx context.Context, r *result) error {
	versions := r.Scene.versions()
	w.noteVersion(r, versions[0], span(1, len(w.places)), false)
	changes := len(versions) - 1
	start := time.Now().Add(lull)
	for i := range changes {
		share := (r.Length - lull) / time.Duration(changes)
		pause(ctx, time.Until(start.Add(time.Duration(i)*share)))
		if err := w.deploy(ctx, r, i+1, share-longestTTL(r.Scene.expiry)); err != nil {
			return fmt.Errorf("deployment of %v: %w", versions[i+1], err)
		}
	}
	w.noteVersion(r, versions[changes], span(1, len(w.places)), true)
	return context.Cause(ctx)
}

// noteVersion notes that a deployment begins or ends at some places, if there is more than one deployment.
func (w *world) noteVersion(r *result, d deployment, places []int, ends bool) {
	for _, i := range places {
		if len(r.Scene.versions()) > 1 {
			w.log.Note(history.Event{At: w.now(), Kind: history.Fault, Where: processRow(i), What: d.String(), Ends: ends})
		}
	}
}

// deploy replaces the processes of the previous deployment by processes of the deployment with the index version. It
// replaces one process after the other, in the time length or longer, so that both deployments run at once. Then it
// waits until no key of an ended process is left. NewJoint requires this wait between two deployments.
func (w *world) deploy(ctx context.Context, r *result, version int, length time.Duration) error {
	versions := r.Scene.versions()
	was, is := versions[version-1], versions[version]
	r.say("%7.2f s  %v", (w.now() - r.From).Seconds(), is)
	for _, i := range is.dead {
		w.nodes[i].dead.Store(true)
		w.nodes[i].kill()
	}
	start := time.Now()
	for i := range w.places {
		if i > 0 {
			pause(ctx, max(rolling, time.Until(start.Add(length*time.Duration(i)/time.Duration(len(w.places))))))
		}
		// Each deployment kills one process, each time at another place. A killed process may leave keys behind.
		if err := w.replace(ctx, r, i+1, version, i == version%len(w.places)); err != nil {
			return err
		}
		w.noteVersion(r, was, []int{i + 1}, true)
		w.noteVersion(r, is, []int{i + 1}, false)
	}
	for _, i := range w.nodesOf(was) {
		if !slices.Contains(w.nodesOf(is), i) {
			w.left[i] = w.now() + gone(r.Scene.expiry)
		}
	}
	pause(ctx, longestTTL(r.Scene.expiry))
	return nil
}

// nodesOf returns the nodes to which the addresses of d lead.
func (w *world) nodesOf(d deployment) (nodes []int) {
	for _, address := range d.addresses() {
		nodes = append(nodes, address%len(w.nodes))
	}
	return nodes
}

// replace starts a process of a deployment, and then ends the process that had the place: it kills that process,
// or tells it to stop.
func (w *world) replace(ctx context.Context, r *result, place, version int, kill bool) error {
	old := w.place(place)
	p, err := w.startProcess(ctx, r.settings, old.number+len(w.places), version, -1)
	if err != nil {
		return err
	}
	err = p.await(ctx, sayReady)
	if err == nil {
		err = p.tell(ctx, sayGo)
	}
	if err != nil {
		p.kill()
		return err
	}
	w.mu.Lock()
	w.places[place-1] = p
	w.retired = append(w.retired, old)
	w.mu.Unlock()
	if kill {
		old.killed = w.now()
	} else {
		for _, word := range []string{sayStop, sayGoodbye} {
			if err == nil {
				err = old.tell(ctx, word)
			}
		}
		if err == nil {
			err = old.finish(ctx)
		}
	}
	old.kill() // if it has ended, this only frees its resources
	return err
}

// A served says what the processes of one deployment have done.
type served struct {
	Nodes string        `json:"nodes"`
	Locks int           `json:"locks"`
	From  time.Duration `json:"from"` // when the first lock was acquired
	To    time.Duration `json:"to"`   // when the last lock was acquired
	Cut   int           `json:"cut"`  // how many holds outlived their process because it was killed
}

// served returns what the processes of each deployment have done, or nil if there is only one deployment.
func (r *result) served() []served {
	versions := r.Scene.versions()
	if len(versions) < 2 {
		return nil
	}
	all := make([]served, len(versions))
	for i, d := range versions {
		all[i].Nodes = d.String()
	}
	byNumber := map[string]*process{}
	for _, p := range r.Processes {
		byNumber[strconv.Itoa(p.number)] = p
	}
	for _, t := range r.Terms {
		number, _, _ := strings.Cut(t.Client, "/")
		p := byNumber[number]
		s := &all[p.version]
		if s.Locks == 0 {
			s.From = t.From
		}
		s.Locks++
		s.To = t.From
		if p.killed != 0 && t.To > p.killed {
			s.Cut++
		}
	}
	return all
}

const (
	// leastServed is how many locks the processes of each deployment must acquire.
	leastServed = 10
	// cutEvery is the number of deployments for which there must be one hold that outlived its process, because the
	// process was killed. Not every deployment has such a hold: it kills only one process, which may hold nothing at
	// that moment.
	cutEvery = 5
)

// unserved returns why the deployments prove nothing, or nil.
func (r *result) unserved() error {
	all := r.served()
	cut := 0
	for i, s := range all {
		cut += s.Cut
		switch {
		case s.Locks < leastServed:
			return fmt.Errorf("%s: only %d locks were acquired: %d are needed to show something", s.Nodes, s.Locks, leastServed)
		case i > 0 && s.From > all[i-1].To:
			return fmt.Errorf("%s: no process ran beside those of %s", s.Nodes, all[i-1].Nodes)
		}
	}
	if needed := len(all) / cutEvery; cut < needed {
		return fmt.Errorf("%d holds outlived their process: %d are needed to show something", cut, needed)
	}
	for _, d := range r.Scene.deployments {
		for _, address := range d.addresses() {
			if node := address % r.Scene.nodeCount(); !r.heldOn(node) {
				return fmt.Errorf("%s: no lock's key was seen there", nodeRow(node))
			}
		}
	}
	return nil
}

// heldOn reports whether the key of a lock was seen on a node.
func (r *result) heldOn(node int) bool {
	return slices.ContainsFunc(r.Events, func(e history.Event) bool {
		return e.Kind == history.Key && e.Name != "" && e.Node == node
	})
}
